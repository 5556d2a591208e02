"""Calls: `settings`, `insight`, `outside`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.transport import Section

if TYPE_CHECKING:
    from datetime import datetime

    from ade.common.calls import Call
    from ade.events.audit_chain import AuditLine, AuditReport
    from ade.events.metrics import Series
    from ade.events.model import Event
    from ade.server.health import HealthReport, ProblemDescription, Readiness, ServingLiveness
    from ade.server.pagination import Page, RawContent
    from ade.settings.api import FeatureView, SettingView
    from ade.tasks.overview import Overview


class SystemCalls(Section):
    """Methods of the client: `settings`, `insight`, `outside`."""

    def list_settings(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[SettingView]]:
        """Run-time settings, and where their values come from."""
        from ade.server.pagination import Page
        from ade.settings.api import ListSettings, SettingView

        query = ListSettings(cursor=cursor, limit=limit)
        return self._call("list_settings", Page[SettingView], query=query)

    def get_setting(self, setting: str) -> Call[SettingView]:
        """One setting."""
        from ade.settings.api import SettingView

        return self._call("get_setting", SettingView, setting)

    def set_setting(self, setting: str, *, value: float, if_match: int | None = None) -> Call[SettingView]:
        """Change a setting while all goes on."""
        from ade.settings.api import SetSetting, SettingView

        body = SetSetting(value=value)
        return self._call("set_setting", SettingView, setting, body=body, if_match=if_match)

    def unset_setting(self, setting: str) -> Call[SettingView]:
        """Go back to its default."""
        from ade.settings.api import SettingView

        return self._call("unset_setting", SettingView, setting)

    def list_features(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[FeatureView]]:
        """Features, and whether they are on."""
        from ade.server.pagination import Page
        from ade.settings.api import FeatureView, ListFeatures

        query = ListFeatures(cursor=cursor, limit=limit)
        return self._call("list_features", Page[FeatureView], query=query)

    def get_feature(self, feature: str) -> Call[FeatureView]:
        """One feature."""
        from ade.settings.api import FeatureView

        return self._call("get_feature", FeatureView, feature)

    def switch_feature(self, feature: str, *, is_on: bool, if_match: int | None = None) -> Call[FeatureView]:
        """Switch a feature on or off."""
        from ade.settings.api import FeatureView, SwitchFeature

        body = SwitchFeature(is_on=is_on)
        return self._call("switch_feature", FeatureView, feature, body=body, if_match=if_match)

    def unset_feature(self, feature: str) -> Call[FeatureView]:
        """Go back to its default."""
        from ade.settings.api import FeatureView

        return self._call("unset_feature", FeatureView, feature)

    def get_stats(self) -> Call[Overview]:
        """Depths, ages, throughput and workers now."""
        from ade.tasks.overview import Overview

        return self._call("get_stats", Overview)

    def get_stats_series(
        self, *, since: datetime | None = None, until: datetime | None = None, step_s: int = 60,
        queue: str | None = None, name: str | None = None,
    ) -> Call[Series]:
        """The same over time, for charts."""
        from ade.events.api import StatsSeries
        from ade.events.metrics import Series

        query = StatsSeries(since=since, until=until, step_s=step_s, queue=queue, name=name)
        return self._call("get_stats_series", Series, query=query)

    def list_events(
        self, *, type: tuple[str, ...] = (), task: tuple[str, ...] = (), queue: tuple[str, ...] = (),
        name: tuple[str, ...] = (), inbox: tuple[str, ...] = (), lock: tuple[str, ...] = (), after: int | None = None,
        cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Event]]:
        """The event log, page by page or as a stream."""
        from ade.events.api import ListEvents
        from ade.events.model import Event
        from ade.server.pagination import Page

        query = ListEvents(
            type=type, task=task, queue=queue, name=name, inbox=inbox, lock=lock, after=after, cursor=cursor,
            limit=limit,
        )
        return self._call("list_events", Page[Event], query=query)

    def list_audit_entries(
        self, *, type: tuple[str, ...] = (), task: tuple[str, ...] = (), queue: tuple[str, ...] = (),
        name: tuple[str, ...] = (), inbox: tuple[str, ...] = (), lock: tuple[str, ...] = (), after: int | None = None,
        cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[AuditLine]]:
        """The tamper-evident copy of the event log."""
        from ade.events.api import ListAuditEntries
        from ade.events.audit_chain import AuditLine
        from ade.server.pagination import Page

        query = ListAuditEntries(
            type=type, task=task, queue=queue, name=name, inbox=inbox, lock=lock, after=after, cursor=cursor,
            limit=limit,
        )
        return self._call("list_audit_entries", Page[AuditLine], query=query)

    def verify_audit(self) -> Call[AuditReport]:
        """Verify the audit copy: its chain, and the records of governed tasks, accounts, and others."""
        from ade.events.audit_chain import AuditReport
        from ade.server.request_types import Nothing

        body = Nothing()
        return self._call("verify_audit", AuditReport, body=body)

    def export_audit(self, *, after: int = 0) -> Call[RawContent]:
        """All of it, as a file."""
        from ade.events.api import ExportAudit
        from ade.server.pagination import RawContent

        query = ExportAudit(after=after)
        return self._call("export_audit", RawContent, query=query)

    def get_health(self, *, thorough: bool = False) -> Call[HealthReport]:
        """Versions, sizes and what deserves attention."""
        from ade.server.api_system import GetHealth
        from ade.server.health import HealthReport

        query = GetHealth(thorough=thorough)
        return self._call("get_health", HealthReport, query=query)

    def get_liveness(self) -> Call[ServingLiveness]:
        """Whether the process is alive."""
        from ade.server.health import ServingLiveness

        return self._call("get_liveness", ServingLiveness)

    def get_readiness(self) -> Call[Readiness]:
        """Whether it can do its work: store, migrations, loops."""
        from ade.server.health import Readiness

        return self._call("get_readiness", Readiness)

    def get_metrics(self) -> Call[RawContent]:
        """Figures for Prometheus."""
        from ade.server.pagination import RawContent

        return self._call("get_metrics", RawContent)

    def get_openapi(self) -> Call[RawContent]:
        """This interface, described for programs."""
        from ade.server.pagination import RawContent

        return self._call("get_openapi", RawContent)

    def get_problem(self, code: str) -> Call[ProblemDescription]:
        """What a problem means, and what to do."""
        from ade.server.health import ProblemDescription

        return self._call("get_problem", ProblemDescription, code)
