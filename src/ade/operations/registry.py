"""Which function carries out an operation, and what it takes and answers. Sections are loaded when first needed."""

import inspect
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from msgspec import Struct

from ade.operations.kit import Tagged

if TYPE_CHECKING:
    from ade.core.web.routing import Route

Operation = Callable[..., Awaitable[Any]]
_FIRST = 2  # office and asked come before all that is asked

# Modules of ade.operations -> the operations in them.
MODULES: dict[str, tuple[str, ...]] = {
    "agents": (
        "list_agents",
        "get_agent",
        "register_agent",
        "heartbeat_agent",
        "set_agent_capacity",
        "drain_agent",
        "activate_agent",
        "mark_agent_offline",
        "remove_agent",
        "list_subagents",
        "get_subagent",
    ),
    "approval_answers": (
        "respond_to_approval",
        "respond_to_approvals",
        "delegate_approval",
        "amend_approval",
        "revoke_approval",
        "dismiss_request",
        "break_glass",
    ),
    "approvals": (
        "list_approvals",
        "get_approval_stats",
        "get_account_approval_stats",
        "get_approval",
        "comment_on_approval",
        "snooze_approval",
    ),
    "audit": (
        "list_audit_entries",
        "verify_audit",
        "export_audit",
    ),
    "bulk": (
        "preview_bulk_action",
        "run_bulk_action",
    ),
    "dead_letters": (
        "list_dead_letters",
        "list_dead_letter_groups",
        "replay_dead_letters",
        "discard_dead_letters",
        "replay_dead_letter",
        "discard_dead_letter",
    ),
    "delegations": (
        "list_delegations",
        "get_delegation",
        "create_delegation",
        "revoke_delegation",
    ),
    "events": ("list_events",),
    "features": (
        "list_features",
        "get_feature",
        "switch_feature",
        "unset_feature",
    ),
    "health": ("get_health",),
    "inboxes": (
        "list_inboxes",
        "get_inbox",
        "put_inbox_items",
        "remove_inbox_item",
        "clear_inbox",
        "reset_inbox",
    ),
    "locks": (
        "list_locks",
        "get_lock_graph",
        "acquire_locks",
        "renew_locks",
        "release_locks",
        "get_lock_position",
        "upgrade_lock",
        "downgrade_lock",
        "force_release_lock",
    ),
    "login_page": (
        "get_login_page",
        "get_login_script",
    ),
    "outside": (
        "get_liveness",
        "get_readiness",
        "get_metrics",
        "get_openapi",
        "get_problem",
    ),
    "policies": (
        "get_rulebook",
        "apply_rulebook",
        "list_rulebook_versions",
        "get_rulebook_version",
        "check_policies",
    ),
    "queues": (
        "list_queues",
        "get_queue",
        "pause_queue",
        "resume_queue",
        "limit_queue",
    ),
    "schedules": (
        "list_schedules",
        "get_schedule",
        "put_schedule",
        "pause_schedule",
        "resume_schedule",
        "remove_schedule",
        "fire_schedule",
    ),
    "sessions": (
        "get_me",
        "list_sessions",
        "sign_in",
        "use_login_link",
        "confirm_session",
        "sign_out",
        "sign_out_everywhere",
        "end_session",
        "change_own_password",
    ),
    "settings": (
        "list_settings",
        "get_setting",
        "set_setting",
        "unset_setting",
    ),
    "stats": (
        "get_stats",
        "get_stats_series",
    ),
    "task_changes": (
        "cancel_task",
        "retry_task",
        "edit_task",
        "submit_task",
        "apply_task",
        "roll_back_task",
    ),
    "task_finding": (
        "list_tasks",
        "get_task",
    ),
    "task_reading": (
        "get_task_result",
        "get_task_output",
        "list_task_events",
        "explain_task",
        "list_definitions",
    ),
    "tasks": (
        "create_task",
        "create_tasks",
    ),
    "tokens": (
        "list_tokens",
        "get_token",
        "create_token",
        "create_own_token",
        "revoke_token",
        "revoke_own_token",
    ),
    "users": (
        "list_users",
        "get_user",
        "create_user",
        "change_user",
        "set_user_password",
        "end_user_sessions",
        "create_login_link",
    ),
    "webhooks": (
        "list_webhooks",
        "create_webhook",
        "get_webhook",
        "change_webhook",
        "remove_webhook",
        "rotate_webhook_secret",
        "test_webhook",
        "list_deliveries",
        "get_delivery",
        "replay_delivery",
    ),
    "work": (
        "claim_tasks",
        "renew_runs",
        "complete_run",
        "fail_run",
        "release_run",
        "hold_run",
        "report_progress",
        "append_output",
    ),
    "workers": (
        "list_workers",
        "get_worker",
        "register_worker",
        "deregister_worker",
    ),
}
_MODULE_OF = {operation: module for module, operations in MODULES.items() for operation in operations}


class Shape(Struct, frozen=True, kw_only=True):
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
    found: Operation = getattr(import_module(f"ade.operations.{_MODULE_OF[name]}"), name)
    return found


@cache
def shape_of(name: str) -> Shape:
    function = operation(name)
    hints = get_type_hints(function)
    taken = list(inspect.signature(function).parameters)[_FIRST:]
    answer = hints["return"]
    is_tagged = get_origin(answer) is Tagged
    if is_tagged:
        [answer] = get_args(answer)
    return Shape(
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
