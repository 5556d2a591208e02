"""Which function carries out an operation, and what it takes and answers. Sections are loaded when first needed."""

import inspect
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from msgspec import Struct

from ade.server.pagination import VersionedRecord

if TYPE_CHECKING:
    from ade.server.routing import Route

Operation = Callable[..., Awaitable[Any]]
_FIRST = 2  # office and asked come before all that is asked

# Modules -> the operations in them.
MODULES: dict[str, tuple[str, ...]] = {
    "ade.accounts.api": (
        "change_user",
        "create_login_link",
        "create_own_token",
        "create_token",
        "create_user",
        "end_user_sessions",
        "get_token",
        "get_user",
        "list_tokens",
        "list_users",
        "revoke_own_token",
        "revoke_token",
        "set_user_password",
    ),
    "ade.accounts.api_sessions": (
        "change_own_password",
        "confirm_session",
        "end_session",
        "get_login_page",
        "get_login_script",
        "get_me",
        "list_sessions",
        "sign_in",
        "sign_out",
        "sign_out_everywhere",
        "use_login_link",
    ),
    "ade.agents.api": (
        "activate_agent",
        "drain_agent",
        "get_agent",
        "get_subagent",
        "heartbeat_agent",
        "list_agents",
        "list_subagents",
        "mark_agent_offline",
        "register_agent",
        "remove_agent",
        "set_agent_capacity",
    ),
    "ade.agents.conversations.api": (
        "clear_inbox",
        "get_inbox",
        "list_inboxes",
        "put_inbox_items",
        "remove_inbox_item",
        "reset_inbox",
    ),
    "ade.approvals.api": (
        "amend_approval",
        "apply_rulebook",
        "break_glass",
        "check_policies",
        "comment_on_approval",
        "create_delegation",
        "delegate_approval",
        "dismiss_request",
        "get_account_approval_stats",
        "get_approval",
        "get_approval_stats",
        "get_delegation",
        "get_rulebook",
        "get_rulebook_version",
        "list_approvals",
        "list_delegations",
        "list_rulebook_versions",
        "respond_to_approval",
        "respond_to_approvals",
        "revoke_approval",
        "revoke_delegation",
        "snooze_approval",
    ),
    "ade.events.api": (
        "export_audit",
        "get_stats",
        "get_stats_series",
        "list_audit_entries",
        "list_events",
        "verify_audit",
    ),
    "ade.locks.api": (
        "acquire_locks",
        "downgrade_lock",
        "force_release_lock",
        "get_lock_graph",
        "get_lock_position",
        "list_locks",
        "release_locks",
        "renew_locks",
        "upgrade_lock",
    ),
    "ade.server.api": (
        "get_health",
        "get_liveness",
        "get_metrics",
        "get_openapi",
        "get_problem",
        "get_readiness",
    ),
    "ade.settings.api": (
        "get_feature",
        "get_setting",
        "list_features",
        "list_settings",
        "set_setting",
        "switch_feature",
        "unset_feature",
        "unset_setting",
    ),
    "ade.tasks.api.dead_letters": (
        "discard_dead_letter",
        "discard_dead_letters",
        "list_dead_letter_groups",
        "list_dead_letters",
        "preview_bulk_action",
        "replay_dead_letter",
        "replay_dead_letters",
        "run_bulk_action",
    ),
    "ade.tasks.api.queues": (
        "get_queue",
        "limit_queue",
        "list_queues",
        "pause_queue",
        "resume_queue",
    ),
    "ade.tasks.api.schedules": (
        "fire_schedule",
        "get_schedule",
        "list_schedules",
        "pause_schedule",
        "put_schedule",
        "remove_schedule",
        "resume_schedule",
    ),
    "ade.tasks.api.tasks": (
        "apply_task",
        "cancel_task",
        "create_task",
        "create_tasks",
        "edit_task",
        "explain_task",
        "get_task",
        "get_task_output",
        "get_task_result",
        "list_definitions",
        "list_task_events",
        "list_tasks",
        "retry_task",
        "roll_back_task",
        "submit_task",
    ),
    "ade.webhooks.api": (
        "change_webhook",
        "create_webhook",
        "get_delivery",
        "get_webhook",
        "list_deliveries",
        "list_webhooks",
        "remove_webhook",
        "replay_delivery",
        "rotate_webhook_secret",
        "test_webhook",
    ),
    "ade.worker.api.runs": (
        "append_output",
        "claim_tasks",
        "complete_run",
        "fail_run",
        "hold_run",
        "release_run",
        "renew_runs",
        "report_progress",
    ),
    "ade.worker.api.workers": (
        "deregister_worker",
        "get_worker",
        "list_workers",
        "register_worker",
    ),
}
_MODULE_OF = {operation: module for module, operations in MODULES.items() for operation in operations}


class OperationSignature(Struct, frozen=True, kw_only=True):
    """What an operation takes and answers."""

    path: tuple[str, ...]
    query: type[Struct] | None
    body: type[Struct] | None
    answer: Any  # a Struct, Page[Struct], or None for nothing
    is_tagged: bool  # the answer comes with its version


def has_operation(name: str) -> bool:
    return name in _MODULE_OF


@cache
def operation(name: str) -> Operation:
    found: Operation = getattr(import_module(_MODULE_OF[name]), name)
    return found


@cache
def shape_of(name: str) -> OperationSignature:
    function = operation(name)
    hints = get_type_hints(function)
    taken = list(inspect.signature(function).parameters)[_FIRST:]
    answer = hints["return"]
    is_tagged = get_origin(answer) is VersionedRecord
    if is_tagged:
        [answer] = get_args(answer)
    return OperationSignature(
        path=tuple(name for name in taken if name not in ("query", "body")),
        query=hints.get("query"),
        body=hints.get("body"),
        answer=None if answer is type(None) else answer,
        is_tagged=is_tagged,
    )


def check_shape(route: "Route") -> None:
    """Raise TypeError unless the function takes what the path of its route gives."""
    shape = shape_of(route.operation)
    if shape.path != route.parameters:
        raise TypeError(f"{route.operation} takes {shape.path}, but its path has {route.parameters}")
