"""Every type of event and the fields of its payload."""

from collections.abc import Mapping

from ade.accounts import authorization
from ade.accounts import model as accounts_model
from ade.agents import model as agents_model
from ade.agents.conversations import inbox
from ade.agents.runs import model as runs_model
from ade.approvals import model as approvals_model
from ade.approvals import repository as approvals_repository
from ade.events import model as events_model
from ade.events.model import ALERT, RECLAIMED
from ade.locks import rules as locks_rules
from ade.settings import runtime
from ade.tasks.changes import EVENT_OF
from docs.generators.approval_events import APPROVAL_EVENTS, APPROVAL_FIELDS
from docs.generators.tables import listed, table
from docs.generators.told import Told
from docs.generators.webhook_events import WEBHOOK_EVENTS, WEBHOOK_FIELDS

_RUN = ("attempt", "run_id", "worker")
_END = ("attempt", "run_id", "kind", "error")
_GOVERNED = ("digest",)  # of a task that had to be approved: what ran
_LOCK, _LOCK_MAYBE = ("namespace", "request_id", "state", "items", "scope"), ("purpose",)
_SESSION, _DELEGATION = (
    ("account", "session"),
    ("delegation", "delegator", "delegate", "starts_at", "ends_at", "conditions"),
)
_SESSION_MAYBE = ("ip", "link_by")
_AGENT_RUN, _AGENT = ("task_id", "run_id", "subagent_type"), ("session_id", "agent_id", "conversation_id", "model")
_ITEM = ("inbox_id", "item_id", "client_message_id", "source", "kind", "queue_len")
_BATCH = ("inbox_id", "batch_id", "item_ids", "merged_count", "queue_len_after")

EVENTS: Mapping[str, Told] = {
    runs_model.AGENT_RUN_BEGAN: Told("an agent's program has said who it is", _AGENT_RUN, _AGENT),
    runs_model.AGENT_RUN_ENDED: Told(
        "an agent's run is over: succeeded, failed or cut short; with what all attempts took so far",
        (*_AGENT_RUN, "tool_calls", "ended"),
        (*_AGENT, "tokens", "cost_usd", "turns", "error"),
    ),
    "task.created": Told("a task was stored", ("queue", "name", "status"), ("parent_id", "run_after", "waits_for")),
    "task.claimed": Told("a worker took it; the attempt counts from here", _RUN, _GOVERNED),
    RECLAIMED: Told(
        "beside `task.claimed`: it was taken over from a silent worker",
        ("attempt", "previous_worker", "new_worker", "entry"),
    ),
    "task.succeeded": Told("its run returned and the result is stored", _RUN, (*_GOVERNED, "result_digest")),
    "task.retry_scheduled": Told(
        "its run failed and will be repeated after the delay", ("attempt", "run_id", "delay_ms", "error"), _GOVERNED
    ),
    "task.failed": Told("it failed for good", _END, ("has_begun", *_GOVERNED)),
    "task.dlq": Told("beside `task.failed`: it is a dead letter now", _END, ("has_begun", *_GOVERNED)),
    ALERT: Told(
        "beside `task.failed`: somebody should look, because it ran out of memory. Also when a conversation rests"
        " because its batches failed too often, then with `what`, `inbox_id`, `failures`, `in_a_row` and `seconds`",
        _END,
    ),
    "task.stalled": Told("its worker went silent and the lease ran out", _RUN, _GOVERNED),
    "task.released": Told("a worker that shut down handed it back", (*_RUN, "reason")),
    "task.deferred": Told(
        "its locks are not free: it waits for them, and the run does not count", ("run_id", "worker", "locks")
    ),
    "task.recalled": Told("its locks were granted, so it may be claimed at once", ("locks",)),
    "task.cancelled": Told(
        "somebody, its parent or a broken dependency stopped it", ("attempt",), ("reason", *_GOVERNED)
    ),
    "task.replayed": Told("a dead letter runs again", ("generation", "edited")),
    "task.discarded": Told("a dead letter was struck off the list", ("reason",)),
    "task.edited": Told("a draft was changed", ("fields",)),
    events_model.QUEUE_PAUSED: Told("somebody paused a queue", ("queue",)),
    events_model.QUEUE_RESUMED: Told("somebody let it go on", ("queue",)),
    events_model.QUEUE_LIMITED: Told("somebody set or lifted its limit of unfinished tasks", ("queue", "max_depth")),
    events_model.SCHEDULE_CHANGED: Told(
        "a schedule was made or replaced", ("schedule", "cron", "timezone", "name", "queue")
    ),
    events_model.SCHEDULE_PAUSED: Told("somebody paused a schedule", ("schedule",)),
    events_model.SCHEDULE_RESUMED: Told("somebody let it go on", ("schedule",)),
    events_model.SCHEDULE_REMOVED: Told("somebody removed a schedule", ("schedule",)),
    agents_model.AGENT_REGISTERED: Told(
        "an agent was made known, or described anew", ("agent", "max_tasks"), ("type", "capabilities")
    ),
    "agent.active": Told("somebody let an agent begin tasks again", ("agent",)),
    "agent.draining": Told("somebody let an agent begin nothing new", ("agent",)),
    "agent.offline": Told("somebody marked an agent as not there; it begins nothing new", ("agent",)),
    agents_model.AGENT_REMOVED: Told("somebody had an agent forgotten", ("agent",)),
    locks_rules.ACQUIRED: Told("a lock was free and is held now", _LOCK, _LOCK_MAYBE),
    locks_rules.QUEUED: Told("somebody stands in line for a lock", _LOCK, _LOCK_MAYBE),
    locks_rules.PROMOTED: Told("whoever stood in line has the lock now", _LOCK, _LOCK_MAYBE),
    locks_rules.UPGRADED: Told("a reader has become the writer, under a new token", _LOCK, _LOCK_MAYBE),
    locks_rules.DOWNGRADED: Told("a writer has become a reader", _LOCK, _LOCK_MAYBE),
    locks_rules.RELEASED: Told("a lock was let go, or somebody left the line", _LOCK, _LOCK_MAYBE),
    locks_rules.EXPIRED: Told("a lease or a wait ran out", _LOCK, (*_LOCK_MAYBE, "reason")),
    locks_rules.LOST: Told("an operator took a lock, or a place in line, away", (*_LOCK, "reason", "by"), _LOCK_MAYBE),
    locks_rules.DEADLOCK: Told("agents waited in a ring and this one gave way", (*_LOCK, "cycle"), _LOCK_MAYBE),
    inbox.EVENT_OF[inbox.ItemEnqueued]: Told("an item was put into the inbox of a conversation", _ITEM),
    inbox.EVENT_OF[inbox.ItemDropped]: Told(
        "an item gave way to a new one, or was refused, because the inbox is full", (*_ITEM, "reason")
    ),
    inbox.EVENT_OF[inbox.ItemRemoved]: Told("somebody took an item out", _ITEM),
    inbox.EVENT_OF[inbox.InboxCleared]: Told(
        "all that waited was removed, or a batch was given up", ("inbox_id", "reason", "cleared_count", "item_ids")
    ),
    inbox.EVENT_OF[inbox.InboxBlocked]: Told(
        "items wait and nothing may be taken now", ("inbox_id", "reason", "queue_len")
    ),
    inbox.EVENT_OF[inbox.BatchDequeued]: Told("somebody took a batch", _BATCH),
    inbox.EVENT_OF[inbox.BatchConfirmed]: Told("what the batch led to is stored, and its items are gone", _BATCH),
    inbox.EVENT_OF[inbox.BatchReturned]: Told(
        "a batch was not finished, and is back at the head of the inbox", (*_BATCH, "reason")
    ),
    accounts_model.USER_ADDED: Told(
        "an account was made", ("account", "roles", "is_human", "digest"), ("owner", "person", "login")
    ),
    accounts_model.USER_CHANGED: Told(
        "an account was changed; what it holds of secrets is never told",
        ("account", "fields", "digest"),
        ("roles", "roles_before", "person", "person_before", "owner", "owner_before", "is_active", "login"),
    ),
    accounts_model.ROLES_CHANGED: Told(
        "beside `user.changed`, for the person behind the account: its roles were changed",
        ("account", "roles", "roles_before"),
        ("login",),
    ),
    accounts_model.PASSWORD_SET: Told(
        "beside `user.changed`, for the person behind the account: another account set or removed the password, or made"
        " the login link by which it was set; the account cannot vote before its owner has changed it",
        ("account", "set_by"),
        ("login",),
    ),
    accounts_model.PASSWORD_CHANGED: Told(
        "beside `user.changed`, for the person behind the account: it changed its own password",
        ("account",),
        ("login",),
    ),
    accounts_model.TOKEN_CREATED: Told(
        "an access token was made; `actor` made it", ("account", "token", "scopes", "expires_at"), ("login",)
    ),
    accounts_model.TOKEN_REVOKED: Told("an access token was taken back", ("account", "token", "reason")),
    accounts_model.SESSION_OPENED: Told("somebody has signed in", _SESSION, _SESSION_MAYBE),
    accounts_model.SESSION_CONFIRMED: Told("somebody has given the password once more", _SESSION, _SESSION_MAYBE),
    accounts_model.SESSION_ENDED: Told(
        "login sessions were ended; those that run out are not told", ("account", "sessions", "reason")
    ),
    accounts_model.LOGIN_LINK_CREATED: Told(
        "a link was made that lets somebody sign in once", ("account", "expires_at"), ("login",)
    ),
    accounts_model.LOGIN_LINK_USED: Told(
        "beside `session.opened`: somebody came through such a link; `link_by` made it, if that was another account",
        _SESSION,
        _SESSION_MAYBE,
    ),
    authorization.ACCESS_REFUSED: Told(
        "a token or session that is none was sent; told once a minute for each address", ("ip", "given")
    ),
    authorization.FOREIGN_ASKED: Told(
        "somebody asked for what is not his own, and was told that it does not exist; at most ten times a minute",
        ("account", "operation", "about"),
    ),
    events_model.AUDIT_ANCHORED: Told(
        "the head of the audit copy, to be kept where the owner of the store cannot change it", ("seq", "hash")
    ),
    approvals_repository.RULEBOOK_CHANGED: Told("another rulebook is in force", ("version", "digest")),
    approvals_repository.SELF_REVIEW_ALLOWED: Told(
        "beside `rulebook.changed`: under some of its policies authors may approve their own tasks",
        ("version", "policies"),
    ),
    runtime.SETTING_CHANGED: Told("a run-time setting was changed, or taken back", ("name", "old", "new")),
    runtime.FEATURE_CHANGED: Told("a feature was switched, or that was taken back", ("name", "old", "new")),
    approvals_model.DELEGATION_CREATED: Told("somebody lets another one answer in his place", _DELEGATION),
    approvals_model.DELEGATION_REVOKED: Told("that was taken back", _DELEGATION),
    approvals_model.CYCLE_FOUND: Told(
        "two delegations made at once have closed a ring; one should be revoked", _DELEGATION
    ),
    **WEBHOOK_EVENTS,
    **APPROVAL_EVENTS,
}

FIELDS: Mapping[str, str] = {
    "about": "the id of what was asked for",
    "account": "the account it is about",
    "agent": "its name",
    "agent_id": "the agent, as its program names it",
    "attempt": "number of the run within its generation, from 1",
    "batch_id": "the batch, counted in its inbox",
    "by": "who did it",
    "capabilities": "what the agent can do",
    "cleared_count": "how many items",
    "client_message_id": "what whoever sent the item calls it, or `cm-` and its id",
    "conditions": "what the delegation is limited to",
    "conversation_id": "the conversation, as the agent's program names it",
    "cost_usd": "dollars of all attempts so far",
    "cron": "when it fires",
    "cycle": "the scopes that waited for each other",
    "delay_ms": "milliseconds until the next attempt",
    "delegate": "the account that answers",
    "delegation": "its id",
    "delegator": "the account in whose place it answers",
    "digest": "SHA-256 over what it says, over the record, or over what was approved and runs",
    "edited": "whether the arguments were changed",
    "ended": "`succeeded`, `failed` or `cut short`",
    "ends_at": "when it is over (a moment)",
    "entry": "the task's place in the order of arrival",
    "error": "type and message of the error, cut to 500 characters",
    "hash": "the hash of that entry of the audit copy",
    "result_digest": "SHA-256 over the result",
    "seq": "the entry of the audit copy",
    "has_begun": "false if the handler was never called; otherwise left out",
    "expires_at": "when it is over by itself (a moment)",
    "fields": "names of the fields that were changed",
    "generation": "the generation that begins",
    "given": "`token` or `session`",
    "inbox_id": "the inbox, which is the name of its conversation",
    "ip": "the address the request came from",
    "link_by": "the other account that made the login link",
    "set_by": "the account that set the password, or made the login link",
    "login": "the login name of whoever ran the command on the store itself, whatever account they named",
    "is_active": "whether the account may be used",
    "is_human": "whether it is a person and no program",
    "item_id": "the item, counted in its inbox; what it says is not told",
    "item_ids": "the items, in their order",
    "items": "the resources, each with its mode and its fencing token (0: not granted)",
    "kind": "kind of failure, see [The life of a task](../explanation/lifecycle.md#failures), of item, or of channel",
    "locks": "the resources it waits or waited for",
    "max_depth": "how many unfinished tasks the queue may have; null for no limit",
    "max_tasks": "how many tasks the agent may have at once",
    "merged_count": "how many items",
    "model": "the model the agent works with",
    "name": "the name of the task, the setting or the feature",
    "namespace": "where the lock's name counts",
    "new": "the value from then on; null: nothing is in the store, so files and defaults count",
    "new_worker": "the worker that took the task over",
    "operation": "what was asked for, as the HTTP interface calls it",
    "old": "the value until then; null: nothing was in the store",
    "owner": "the person who answers for the program",
    "owner_before": "the person who answered for it until then",
    "parent_id": "the task that enqueued this one",
    "person": "the name that all accounts of one person have in common; empty: that of the account itself",
    "person_before": "the same until then",
    "policies": "their ids",
    "previous_worker": "the worker that went silent",
    "purpose": "what the lock is for, as its holder said",
    "queue": "the queue, or the task's queue",
    "queue_len": "how many items wait then",
    "queue_len_after": "how many items wait then",
    "reason": "the reason somebody gave, or ADE has",
    "request_id": "the lock request, which is also the grant",
    "roles": "all its roles from then on",
    "roles_before": "all its roles until then",
    "run_after": "not claimed before then, where that is later than the event (a moment)",
    "run_id": "the mark of the run",
    "schedule": "its name",
    "scope": "what holds and waits in one go, such as a run",
    "scopes": "the permissions that it is for",
    "session": "the beginning of the hash of the session's secret",
    "session_id": "the session of the agent's program",
    "sessions": "the same of each session",
    "source": "where the item came from: user, task_notification, subagent or system",
    "starts_at": "when it begins (a moment)",
    "state": "how the request stood: granted, waiting or victim",
    "status": "the status the task begins with",
    "subagent_type": "the type of agent",
    "timezone": "where the clock of its cron line hangs",
    "token": "the id of the token",
    "task_id": "the task it is about; the event itself belongs to none",
    "tokens": "tokens of all attempts so far",
    "tool_calls": "how often tools were used",
    "turns": "turns of all attempts so far",
    "type": "what kind of agent it is, or the type of the event that is told",
    "version": "its number, from 1",
    "waits_for": "how many tasks it depends on",
    "worker": "id of the worker",
    **WEBHOOK_FIELDS,
    **APPROVAL_FIELDS,
}


def event_types() -> str:
    unknown = [name for names in EVENT_OF.values() for name in names if name not in EVENTS]
    if unknown:
        raise KeyError(f"say what {', '.join(unknown)} means, in {__name__}")

    def row(kind: str, told: Told) -> list[str]:
        fields = [*told.always, *(f"{name}?" for name in told.sometimes)]
        return [f"`{kind}`", told.when, listed(fields)]

    return table(["type", "when", "payload"], (row(kind, told) for kind, told in EVENTS.items()))


def event_fields() -> str:
    used = sorted({name for told in EVENTS.values() for name in (*told.always, *told.sometimes)})
    return table(["field", "meaning"], ([f"`{name}`", FIELDS[name]] for name in used))
