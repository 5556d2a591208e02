"""Approvals and delegations, the rulebook, accounts, tokens and sessions."""

from collections.abc import Mapping

from ade.accounts.model import Permission
from ade.server.rate_limits import TrafficClass
from ade.server.routing import AuthLevel, ETagUse, Route, change, read

_ENQUEUE, _OPERATE, _VOTE = Permission.ENQUEUE, Permission.OPERATE, Permission.VOTE
_ADMIN, _GLASS = Permission.ADMINISTER, Permission.BREAK_GLASS
_APPROVAL = "/approvals/{task_id}"


def _vote(line: str, operation: str, summary: str, **more: object) -> Route:
    return change(f"POST {line}", operation, summary, _VOTE, traffic=TrafficClass.VOTE, **more)


def _secretive(line: str, operation: str, summary: str, *needs: Permission, **more: object) -> Route:
    """What is sent has a password in it, or the answer a secret: nothing of it is kept, not even a hash."""
    return change(line, operation, summary, *needs, takes_key=False, **more)


def _self(line: str, operation: str, summary: str, door: AuthLevel = AuthLevel.SESSION) -> Route:
    return change(line, operation, summary, door=door, traffic=TrafficClass.LOGIN, takes_key=False)


APPROVALS: tuple[Route, ...] = (
    read("/approvals", "list_approvals", "What waits for people, for oneself or for all."),
    read("/approvals/stats", "get_approval_stats", "How many wait, how long, and how they end."),
    read("/approvals/stats/{account}", "get_account_approval_stats", "What waits for one account, and its answers."),
    read(_APPROVAL, "get_approval", "What is asked, who may answer, what was answered."),
    _vote(f"{_APPROVAL}/respond", "respond_to_approval", "Approve, reject or ask for changes.", takes_key=False),
    _vote("/approvals/batch", "respond_to_approvals", "Answer many in the same way.", takes_key=False),
    _vote(f"{_APPROVAL}/delegate", "delegate_approval", "Let somebody else answer this one."),
    _vote(f"{_APPROVAL}/amend", "amend_approval", "Edit what waits, and put it before people again."),
    _vote(f"{_APPROVAL}/snooze", "snooze_approval", "Leave it out of one's list for a while."),
    change(f"POST {_APPROVAL}/comment", "comment_on_approval", "Say something.", _ENQUEUE, _VOTE),
    change(f"POST {_APPROVAL}/revoke", "revoke_approval", "Take an approval back.", _VOTE),
    change(f"POST {_APPROVAL}/dismiss", "dismiss_request", "Set a request for changes aside.", _ADMIN),
    _secretive(f"POST {_APPROVAL}/break-glass", "break_glass", "Let it run in an emergency.", _GLASS),
    read("/delegations", "list_delegations", "Who answers for whom."),
    change("POST /delegations", "create_delegation", "Let somebody answer for oneself.", _VOTE, others=_ADMIN),
    read("/delegations/{delegation_id}", "get_delegation", "One delegation."),
    change("DELETE /delegations/{delegation_id}", "revoke_delegation", "End a delegation.", _VOTE, others=_ADMIN),
)

POLICIES: tuple[Route, ...] = (
    read("/policies", "get_rulebook", "The rulebook: guard rules, and who must approve what.", tag=ETagUse.ANSWERED),
    change("PUT /policies", "apply_rulebook", "Put another rulebook in force.", _ADMIN, tag=ETagUse.REQUIRED),
    read("/policies/versions", "list_rulebook_versions", "All rulebooks there were."),
    read("/policies/versions/{version}", "get_rulebook_version", "One of them."),
    read("/policies/check", "check_policies", "What the rules say about a task, without storing it.", method="POST"),
)

ACCOUNTS: tuple[Route, ...] = (
    read("/users", "list_users", "Accounts of people and programs."),
    _secretive("POST /users", "create_user", "Make an account.", _ADMIN, tag=ETagUse.ANSWERED),
    read("/users/{account}", "get_user", "One account.", tag=ETagUse.ANSWERED),
    change(
        "PATCH /users/{account}",
        "change_user",
        "Change name, roles, owner or whether it is active.",
        _ADMIN,
        tag=ETagUse.REQUIRED,
    ),
    change("PUT /users/{account}/password", "set_user_password", "Give a new password.", _ADMIN),
    change("DELETE /users/{account}/sessions", "end_user_sessions", "End all its sessions.", _ADMIN),
    _secretive("POST /users/{account}/login-link", "create_login_link", "Let a person sign in once.", _ADMIN),
    read("/tokens", "list_tokens", "Access tokens, without their secrets.", others=_ADMIN),
    _secretive("POST /tokens", "create_token", "Make an access token; its secret is shown this once.", _ADMIN),
    read("/tokens/{token_id}", "get_token", "One access token.", others=_ADMIN),
    change("DELETE /tokens/{token_id}", "revoke_token", "Revoke an access token.", _ADMIN),
    read("/me", "get_me", "Who one is, and what one may do.", None, door=AuthLevel.SELF),
    read("/sessions", "list_sessions", "Live login sessions.", others=_ADMIN),
    _self("POST /sessions", "sign_in", "Sign in with name and password.", AuthLevel.PUBLIC),
    _self("POST /sessions/login-link", "use_login_link", "Sign in with the one-time link.", AuthLevel.PUBLIC),
    _self("POST /sessions/current/confirm", "confirm_session", "Give the password once more."),
    _self("DELETE /sessions/current", "sign_out", "End this session."),
    _self("DELETE /sessions/{session_id}", "end_session", "End another session of one's own."),
    _self("DELETE /sessions", "sign_out_everywhere", "End all sessions of one's own."),
    _self("PUT /me/password", "change_own_password", "Change one's own password."),
    _self("POST /me/tokens", "create_own_token", "Make an access token of one's own; its secret is shown this once."),
    _self("DELETE /me/tokens/{token_id}", "revoke_own_token", "Revoke an access token of one's own."),
)


# What tasks share: locks, agents, workers, queues, schedules and the inboxes of conversations.


_ENQUEUE_RESOURCES, _OPERATE_RESOURCES, _WORK = Permission.ENQUEUE, Permission.OPERATE, Permission.WORK
_AGENT, _QUEUE, _SCHEDULE, _INBOX = (
    "/agents/{agent_id}",
    "/queues/{queue}",
    "/schedules/{schedule}",
    "/inboxes/{inbox_id}",
)


def _own(line: str, operation: str, summary: str, traffic: TrafficClass = TrafficClass.WORK) -> Route:
    """With the id of the grant in the body: it is a secret of its holder, and addresses are written down."""
    return change(f"POST {line}", operation, summary, _ENQUEUE_RESOURCES, traffic=traffic, takes_key=False)


LOCKS: tuple[Route, ...] = (
    read("/locks", "list_locks", "Who holds and waits for what."),
    read("/locks/graph", "get_lock_graph", "Who waits for whom, and the rings among them."),
    _own("/locks/acquire", "acquire_locks", "Ask for locks, all or none; may wait for them.", TrafficClass.LOCK),
    _own("/locks/renew", "renew_locks", "Keep locks, or a place in line."),
    _own("/locks/release", "release_locks", "Let locks go, or leave the line."),
    _own("/locks/upgrade", "upgrade_lock", "Make a share exclusive.", TrafficClass.LOCK),
    _own("/locks/downgrade", "downgrade_lock", "Make it a share again."),
    read(
        "/locks/position",
        "get_lock_position",
        "One's place in line.",
        _ENQUEUE_RESOURCES,
        method="POST",
        traffic=TrafficClass.WORK,
    ),
    change("POST /locks/force-release", "force_release_lock", "Take a lock away from its holder.", _OPERATE_RESOURCES),
)

AGENTS: tuple[Route, ...] = (
    read("/agents", "list_agents", "Agents, and how much of their capacity is in use."),
    read(_AGENT, "get_agent", "One agent."),
    change(f"PUT {_AGENT}/capacity", "set_agent_capacity", "Change how much it may do at once.", _OPERATE_RESOURCES),
    change(
        f"PUT {_AGENT}",
        "register_agent",
        "Register an agent, with its type and capacity.",
        _ENQUEUE_RESOURCES,
        _OPERATE_RESOURCES,
        others=_OPERATE_RESOURCES,
    ),
    change(
        f"POST {_AGENT}/heartbeat",
        "heartbeat_agent",
        "Say that it is there.",
        _ENQUEUE_RESOURCES,
        _OPERATE_RESOURCES,
        others=_OPERATE_RESOURCES,
        traffic=TrafficClass.WORK,
        takes_key=False,
    ),
    change(
        f"POST {_AGENT}/drain",
        "drain_agent",
        "Begin nothing new on it.",
        _ENQUEUE_RESOURCES,
        _OPERATE_RESOURCES,
        others=_OPERATE_RESOURCES,
    ),
    change(
        f"POST {_AGENT}/activate",
        "activate_agent",
        "Let it work again.",
        _ENQUEUE_RESOURCES,
        _OPERATE_RESOURCES,
        others=_OPERATE_RESOURCES,
    ),
    change(
        f"POST {_AGENT}/offline",
        "mark_agent_offline",
        "Say that it is not there.",
        _ENQUEUE_RESOURCES,
        _OPERATE_RESOURCES,
        others=_OPERATE_RESOURCES,
    ),
    change(f"DELETE {_AGENT}", "remove_agent", "Forget an agent.", _OPERATE_RESOURCES),
    read("/subagents", "list_subagents", "Agents at work: for whom, how far, at what cost."),
    read("/subagents/{task_id}", "get_subagent", "One of them."),
)

WORKERS: tuple[Route, ...] = (
    read("/workers", "list_workers", "Workers and how they are doing."),
    read("/workers/{worker_id}", "get_worker", "One worker."),
    change(
        "PUT /workers/{worker_id}",
        "register_worker",
        "Say what a worker is and can run.",
        _WORK,
        traffic=TrafficClass.WORK,
    ),
    change(
        "DELETE /workers/{worker_id}",
        "deregister_worker",
        "Forget a worker that has handed all back.",
        _WORK,
        traffic=TrafficClass.WORK,
    ),
)

QUEUES: tuple[Route, ...] = (
    read("/queues", "list_queues", "Queues with their depths and ages."),
    read(_QUEUE, "get_queue", "One queue."),
    change(f"POST {_QUEUE}/pause", "pause_queue", "Claim nothing from it.", _OPERATE_RESOURCES),
    change(f"POST {_QUEUE}/resume", "resume_queue", "Claim from it again.", _OPERATE_RESOURCES),
    change(f"PUT {_QUEUE}/limits", "limit_queue", "Change how many tasks it takes.", _OPERATE_RESOURCES),
    read("/schedules", "list_schedules", "Tasks that come again and again."),
    read(_SCHEDULE, "get_schedule", "One schedule.", tag=ETagUse.ANSWERED),
    change(f"PUT {_SCHEDULE}", "put_schedule", "Make or replace a schedule.", _OPERATE_RESOURCES, tag=ETagUse.HEEDED),
    change(f"POST {_SCHEDULE}/pause", "pause_schedule", "Let it fire no more.", _OPERATE_RESOURCES),
    change(f"POST {_SCHEDULE}/resume", "resume_schedule", "Let it fire again.", _OPERATE_RESOURCES),
    change(f"POST {_SCHEDULE}/fire", "fire_schedule", "Enqueue its task now.", _OPERATE_RESOURCES),
    change(f"DELETE {_SCHEDULE}", "remove_schedule", "Remove a schedule.", _OPERATE_RESOURCES),
)

INBOXES: tuple[Route, ...] = (
    read("/inboxes", "list_inboxes", "Conversations, and what they have still to be told."),
    read(_INBOX, "get_inbox", "One conversation's inbox.", tag=ETagUse.ANSWERED),
    change(f"POST {_INBOX}/items", "put_inbox_items", "Tell a conversation something.", _ENQUEUE_RESOURCES),
    change(f"DELETE {_INBOX}/items/{{item_id}}", "remove_inbox_item", "Take an item out.", _OPERATE_RESOURCES),
    change(f"POST {_INBOX}/clear", "clear_inbox", "Empty an inbox.", _OPERATE_RESOURCES, tag=ETagUse.HEEDED),
    change(f"POST {_INBOX}/reset", "reset_inbox", "Forget what its consumer remembers.", _OPERATE_RESOURCES),
)


# Webhooks, run-time settings, events, figures, the audit trail, and what probes and browsers ask for.


_OPERATE_SYSTEM, _ADMIN_SYSTEM = Permission.OPERATE, Permission.ADMINISTER
_HOOK = "/webhooks/{webhook_id}"

WEBHOOKS: tuple[Route, ...] = (
    read("/webhooks", "list_webhooks", "Who is told about what, and how that goes.", _OPERATE_SYSTEM),
    change(
        "POST /webhooks",
        "create_webhook",
        "Tell an address about events; its secret is shown this once.",
        _ADMIN_SYSTEM,
        takes_key=False,
    ),  # a kept answer would keep the secret
    read(_HOOK, "get_webhook", "One webhook.", _OPERATE_SYSTEM, tag=ETagUse.ANSWERED),
    change(
        f"PATCH {_HOOK}",
        "change_webhook",
        "Change address, events, or whether it is on.",
        _ADMIN_SYSTEM,
        tag=ETagUse.REQUIRED,
    ),
    change(f"DELETE {_HOOK}", "remove_webhook", "Remove a webhook.", _ADMIN_SYSTEM),
    change(
        f"POST {_HOOK}/rotate-secret",
        "rotate_webhook_secret",
        "Give it a new secret; the old one ends later.",
        _ADMIN_SYSTEM,
        takes_key=False,
    ),
    change(f"POST {_HOOK}/test", "test_webhook", "Send a test event.", _OPERATE_SYSTEM),
    read(f"{_HOOK}/deliveries", "list_deliveries", "What was sent, and how it was answered.", _OPERATE_SYSTEM),
    read(f"{_HOOK}/deliveries/{{delivery_id}}", "get_delivery", "One delivery with its tries.", _OPERATE_SYSTEM),
    change(f"POST {_HOOK}/deliveries/{{delivery_id}}/replay", "replay_delivery", "Send it again.", _OPERATE_SYSTEM),
)

SETTINGS: tuple[Route, ...] = (
    read("/config", "list_settings", "Run-time settings, and where their values come from."),
    read("/config/{setting}", "get_setting", "One setting.", tag=ETagUse.ANSWERED),
    change(
        "PUT /config/{setting}", "set_setting", "Change a setting while all goes on.", _ADMIN_SYSTEM, tag=ETagUse.HEEDED
    ),
    change("DELETE /config/{setting}", "unset_setting", "Go back to its default.", _ADMIN_SYSTEM),
    read("/features", "list_features", "Features, and whether they are on."),
    read("/features/{feature}", "get_feature", "One feature.", tag=ETagUse.ANSWERED),
    change(
        "PUT /features/{feature}", "switch_feature", "Switch a feature on or off.", _ADMIN_SYSTEM, tag=ETagUse.HEEDED
    ),
    change("DELETE /features/{feature}", "unset_feature", "Go back to its default.", _ADMIN_SYSTEM),
)

INSIGHT: tuple[Route, ...] = (
    read("/stats", "get_stats", "Depths, ages, throughput and workers now."),
    read("/stats/series", "get_stats_series", "The same over time, for charts."),
    read(
        "/events",
        "list_events",
        "The event log, page by page or as a stream.",
        traffic=TrafficClass.STREAM,
        is_stream=True,
    ),
    read("/audit", "list_audit_entries", "The tamper-evident copy of the event log.", _OPERATE_SYSTEM),
    read(
        "/audit/verify",
        "verify_audit",
        "Whether its chain holds.",
        _OPERATE_SYSTEM,
        method="POST",
        traffic=TrafficClass.STREAM,
    ),
    read("/audit/export", "export_audit", "All of it, as a file.", _ADMIN_SYSTEM, traffic=TrafficClass.STREAM),
    read("/health", "get_health", "Versions, sizes and what deserves attention.", _OPERATE_SYSTEM),
)


def _outside(path: str, operation: str, summary: str, **more: object) -> Route:
    """Not below the API's prefix."""
    given: dict[str, object] = {"door": AuthLevel.PUBLIC, "traffic": TrafficClass.PROBE, **more}
    return Route(method="GET", path=path, operation=operation, summary=summary, **given)  # type: ignore[arg-type]


SYSTEM_ROUTES: tuple[Route, ...] = (
    _outside("/livez", "get_liveness", "Whether the process is alive."),
    _outside("/readyz", "get_readiness", "Whether it can do its work: store, migrations, loops."),
    _outside(
        "/metrics",
        "get_metrics",
        "Figures for Prometheus.",
        door=AuthLevel.PERMISSION,
        needs=frozenset({Permission.READ}),
        traffic=TrafficClass.READ,
    ),
    _outside(
        "/api/v1/openapi.json",
        "get_openapi",
        "This interface, described for programs.",
        traffic=TrafficClass.READ,
        tag=ETagUse.ANSWERED,
    ),
    _outside("/login", "get_login_page", "The page that a one-time link opens.", traffic=TrafficClass.READ),
    _outside("/login.js", "get_login_script", "What that page does.", traffic=TrafficClass.READ),
    _outside("/problems/{code}", "get_problem", "What a problem means, and what to do.", traffic=TrafficClass.READ),
)


# Tasks, dead letters, and the verbs of workers that live behind HTTP.


_ENQUEUE_TASKS, _OPERATE_TASKS, _WORK_TASKS = Permission.ENQUEUE, Permission.OPERATE, Permission.WORK
_TASK, _RUN = "/tasks/{task_id}", "/runs/{run_id}"

TASKS: tuple[Route, ...] = (
    change(
        "POST /tasks", "create_task", "Enqueue a task, or write a draft of one.", _ENQUEUE_TASKS, tag=ETagUse.ANSWERED
    ),
    change("POST /tasks/bulk", "create_tasks", "Enqueue many tasks, all or none.", _ENQUEUE_TASKS),
    read("/tasks", "list_tasks", "List tasks by a filter, page by page."),
    read(_TASK, "get_task", "One task; with ?wait= as soon as it is final.", tag=ETagUse.ANSWERED),
    change(f"PATCH {_TASK}", "edit_task", "Edit a draft.", _ENQUEUE_TASKS, others=_OPERATE_TASKS, tag=ETagUse.REQUIRED),
    change(f"POST {_TASK}/submit", "submit_task", "Put a draft before people.", _ENQUEUE_TASKS, others=_OPERATE_TASKS),
    change(
        f"POST {_TASK}/cancel", "cancel_task", "Stop a task.", _ENQUEUE_TASKS, others=_OPERATE_TASKS, tag=ETagUse.HEEDED
    ),
    change(
        f"POST {_TASK}/retry",
        "retry_task",
        "Run a failed task again.",
        _ENQUEUE_TASKS,
        others=_OPERATE_TASKS,
        tag=ETagUse.HEEDED,
    ),
    change(
        f"POST {_TASK}/apply",
        "apply_task",
        "Start an approved task.",
        _ENQUEUE_TASKS,
        others=_OPERATE_TASKS,
        tag=ETagUse.HEEDED,
    ),
    change(f"POST {_TASK}/rollback", "roll_back_task", "Undo a completed task.", _ENQUEUE_TASKS, others=_OPERATE_TASKS),
    read(f"{_TASK}/result", "get_task_result", "The whole result, also a large one.", tag=ETagUse.ANSWERED),
    read(
        f"{_TASK}/output",
        "get_task_output",
        "The lines it has written, at once or as a stream.",
        traffic=TrafficClass.STREAM,
        is_stream=True,
    ),
    read(f"{_TASK}/events", "list_task_events", "What has happened to it."),
    read(f"{_TASK}/explain", "explain_task", "Why it is not running."),
    read(
        "/bulk-actions/preview",
        "preview_bulk_action",
        "How many tasks an action would reach.",
        _OPERATE_TASKS,
        method="POST",
    ),
    change(
        "POST /bulk-actions", "run_bulk_action", "Cancel, retry or discard all that a filter finds.", _OPERATE_TASKS
    ),
    read("/definitions", "list_definitions", "Names that workers run, with the schema of their arguments."),
)

DEAD_LETTERS: tuple[Route, ...] = (
    read("/dlq", "list_dead_letters", "Failed tasks nobody has dealt with yet."),
    read("/dlq/groups", "list_dead_letter_groups", "Dead letters that are the same mistake."),
    change("POST /dlq/replay", "replay_dead_letters", "Replay a group of dead letters.", _OPERATE_TASKS),
    change("POST /dlq/discard", "discard_dead_letters", "Discard a group of dead letters.", _OPERATE_TASKS),
    change("POST /dlq/{task_id}/replay", "replay_dead_letter", "Replay one, edited if need be.", _OPERATE_TASKS),
    change("POST /dlq/{task_id}/discard", "discard_dead_letter", "Discard one.", _OPERATE_TASKS),
)


def _verb(name: str, operation: str, summary: str, path: str = _RUN) -> Route:
    """Fenced by the run's id, so that a key would add nothing."""
    return change(f"POST {path}/{name}", operation, summary, _WORK_TASKS, traffic=TrafficClass.WORK, takes_key=False)


WORK: tuple[Route, ...] = (
    _verb("claim", "claim_tasks", "Take tasks that are due; may wait for some.", "/runs"),
    _verb("heartbeat", "renew_runs", "Keep the leases of runs, and learn which were lost.", "/runs"),
    _verb("complete", "complete_run", "Hand in a result."),
    _verb("fail", "fail_run", "Report a failure."),
    _verb("hold", "hold_run", "Let the task wait for people."),
    _verb("release", "release_run", "Hand a task back unfinished."),
    _verb("progress", "report_progress", "Keep the newest progress."),
    _verb("output", "append_output", "Keep lines that the run has written."),
)


# All routes. Whatever the HTTP layer answers is in here, with who may ask for it.
#
# The order counts: of two routes that fit a path the first is meant, as of `/approvals/stats` and
# `/approvals/{task_id}`.


SECTIONS: Mapping[str, tuple[Route, ...]] = {
    "tasks": TASKS,
    "dead letters": DEAD_LETTERS,
    "work": WORK,
    "approvals": APPROVALS,
    "policies": POLICIES,
    "locks": LOCKS,
    "agents": AGENTS,
    "workers": WORKERS,
    "queues": QUEUES,
    "inboxes": INBOXES,
    "webhooks": WEBHOOKS,
    "settings": SETTINGS,
    "accounts": ACCOUNTS,
    "insight": INSIGHT,
    "outside": SYSTEM_ROUTES,
}
ROUTES: tuple[Route, ...] = tuple(route for section in SECTIONS.values() for route in section)
ROUTE_OF: Mapping[str, Route] = {route.operation: route for route in ROUTES}
