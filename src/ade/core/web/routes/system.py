"""Webhooks, run-time settings, events, figures, the audit trail, and what probes and browsers ask for."""

from ade.core.accounts.permissions import Permission
from ade.core.web.rates import Traffic
from ade.core.web.routing import Door, Route, Tag, change, read

_OPERATE, _ADMIN = Permission.OPERATE, Permission.ADMINISTER
_HOOK = "/webhooks/{webhook_id}"

WEBHOOKS: tuple[Route, ...] = (
    read("/webhooks", "list_webhooks", "Who is told about what, and how that goes.", _OPERATE),
    change("POST /webhooks", "create_webhook", "Tell an address about events; its secret is shown this once.", _ADMIN,
           takes_key=False),  # a kept answer would keep the secret
    read(_HOOK, "get_webhook", "One webhook.", _OPERATE, tag=Tag.ANSWERED),
    change(f"PATCH {_HOOK}", "change_webhook", "Change address, events, or whether it is on.", _ADMIN,
           tag=Tag.REQUIRED),
    change(f"DELETE {_HOOK}", "remove_webhook", "Remove a webhook.", _ADMIN),
    change(f"POST {_HOOK}/rotate-secret", "rotate_webhook_secret", "Give it a new secret; the old one ends later.",
           _ADMIN, takes_key=False),
    change(f"POST {_HOOK}/test", "test_webhook", "Send a test event.", _OPERATE),
    read(f"{_HOOK}/deliveries", "list_deliveries", "What was sent, and how it was answered.", _OPERATE),
    read(f"{_HOOK}/deliveries/{{delivery_id}}", "get_delivery", "One delivery with its tries.", _OPERATE),
    change(f"POST {_HOOK}/deliveries/{{delivery_id}}/replay", "replay_delivery", "Send it again.", _OPERATE),
)  # fmt: skip

SETTINGS: tuple[Route, ...] = (
    read("/config", "list_settings", "Run-time settings, and where their values come from."),
    read("/config/{setting}", "get_setting", "One setting.", tag=Tag.ANSWERED),
    change("PUT /config/{setting}", "set_setting", "Change a setting while all goes on.", _ADMIN, tag=Tag.HEEDED),
    change("DELETE /config/{setting}", "unset_setting", "Go back to its default.", _ADMIN),
    read("/features", "list_features", "Features, and whether they are on."),
    read("/features/{feature}", "get_feature", "One feature.", tag=Tag.ANSWERED),
    change("PUT /features/{feature}", "switch_feature", "Switch a feature on or off.", _ADMIN, tag=Tag.HEEDED),
    change("DELETE /features/{feature}", "unset_feature", "Go back to its default.", _ADMIN),
)

INSIGHT: tuple[Route, ...] = (
    read("/stats", "get_stats", "Depths, ages, throughput and workers now."),
    read("/stats/series", "get_stats_series", "The same over time, for charts."),
    read("/events", "list_events", "The event log, page by page or as a stream.", traffic=Traffic.STREAM,
         is_stream=True),
    read("/audit", "list_audit_entries", "The tamper-evident copy of the event log.", _OPERATE),
    read("/audit/verify", "verify_audit", "Whether its chain holds.", _OPERATE, method="POST", traffic=Traffic.STREAM),
    read("/audit/export", "export_audit", "All of it, as a file.", _ADMIN, traffic=Traffic.STREAM),
    read("/health", "get_health", "Versions, sizes and what deserves attention.", _OPERATE),
)  # fmt: skip


def _outside(path: str, operation: str, summary: str, **more: object) -> Route:
    """Not below the API's prefix."""
    given: dict[str, object] = {"door": Door.PUBLIC, "traffic": Traffic.PROBE, **more}
    return Route(method="GET", path=path, operation=operation, summary=summary, **given)  # type: ignore[arg-type]


OUTSIDE: tuple[Route, ...] = (
    _outside("/livez", "get_liveness", "Whether the process is alive."),
    _outside("/readyz", "get_readiness", "Whether it can do its work: store, migrations, loops."),
    _outside("/metrics", "get_metrics", "Figures for Prometheus.", door=Door.PERMISSION,
             needs=frozenset({Permission.READ}), traffic=Traffic.READ),
    _outside("/api/v1/openapi.json", "get_openapi", "This interface, described for programs.", traffic=Traffic.READ,
             tag=Tag.ANSWERED),
    _outside("/login", "get_login_page", "The page that a one-time link opens.", traffic=Traffic.READ),
    _outside("/login.js", "get_login_script", "What that page does.", traffic=Traffic.READ),
    _outside("/problems/{code}", "get_problem", "What a problem means, and what to do.", traffic=Traffic.READ),
)  # fmt: skip
