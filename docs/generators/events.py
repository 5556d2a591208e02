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
    ("delegation", "delegator", "delegate", "starts_at", "ends_at", "cascades", "conditions"),
)
_SESSION_MAYBE = ("ip", "link_by")
_AGENT_RUN, _AGENT = ("task_id", "run_id", "subagent_type"), ("session_id", "agent_id", "conversation_id", "model")
_ITEM = ("inbox_id", "item_id", "client_message_id", "source", "kind", "queue_len")
_BATCH = ("inbox_id", "batch_id", "item_ids", "merged_count", "queue_len_after")

EVENTS: Mapping[str, Told] = {
    runs_model.AGENT_RUN_BEGAN: Told("the program of an agent has reported its identity", _AGENT_RUN, _AGENT),
    runs_model.AGENT_RUN_ENDED: Told(
        "an agent run ended: succeeded, failed, or cut short; with the usage of all attempts so far",
        (*_AGENT_RUN, "tool_calls", "ended"),
        (*_AGENT, "tokens", "cost_usd", "turns", "error"),
    ),
    "task.created": Told("a task was stored", ("queue", "name", "status"), ("parent_id", "run_after", "waits_for")),
    "task.claimed": Told("a worker claimed it; the attempt counts from here", _RUN, _GOVERNED),
    RECLAIMED: Told(
        "in addition to `task.claimed`: it was taken over from a lost worker",
        ("attempt", "previous_worker", "new_worker", "entry"),
    ),
    "task.succeeded": Told("its run returned and the result is stored", _RUN, (*_GOVERNED, "result_digest")),
    "task.retry_scheduled": Told(
        "its run failed and is retried after the delay", ("attempt", "run_id", "delay_ms", "error"), _GOVERNED
    ),
    "task.failed": Told("it failed for good", _END, ("has_begun", *_GOVERNED)),
    "task.dlq": Told("in addition to `task.failed`: it is a dead letter now", _END, ("has_begun", *_GOVERNED)),
    ALERT: Told(
        "in addition to `task.failed`: it ran out of memory and needs attention. Also when a conversation pauses"
        " because its batches failed too often, then with `what`, `inbox_id`, `failures`, `in_a_row`, and `seconds`."
        " With `what` = `clock_stepped`: the clock of the server that holds `partition` was set forward by `step_ms`."
        " With `what` = `key_of_wrong_type`: another program replaced the Redis key `key` by one of the type `found`"
        " instead of `expected`; `moved_to` is where it is now, and `action` is what to do."
        " Also when something needs an operator, then with `what` (`no_worker`: tasks wait whose name no live worker"
        " runs; `worker_version`: a worker runs another version; `token_expires`), `about`, and `detail`",
        _END,
    ),
    "task.stalled": Told("its worker was lost and the lease expired", _RUN, _GOVERNED),
    "task.released": Told(
        "a worker returned it to the queue: it shut down, could not start it, or could not reach the store",
        (*_RUN, "reason"),
        ("has_begun",),
    ),
    "task.deferred": Told(
        "its locks are not free: it waits for them, and the run does not count", ("run_id", "worker", "locks")
    ),
    "task.recalled": Told("its locks were granted, so it can be claimed immediately", ("locks",)),
    "task.rescheduled": Told(
        "its priority or its start time was changed; `before` has the earlier values",
        ("before",),
        ("priority", "run_after"),
    ),
    "task.cancelled": Told(
        "a person, its parent, or a failed dependency stopped it", ("attempt",), ("reason", *_GOVERNED)
    ),
    "task.replayed": Told("a dead letter runs again", ("generation", "edited")),
    "task.discarded": Told("a dead letter was discarded", ("reason",)),
    "task.edited": Told("a draft was changed", ("fields",)),
    events_model.QUEUE_PAUSED: Told("a queue was paused", ("queue",)),
    events_model.QUEUE_RESUMED: Told("a queue was resumed", ("queue",)),
    events_model.QUEUE_LIMITED: Told("the queue limit was set or removed", ("queue", "max_depth")),
    events_model.SCHEDULE_CHANGED: Told(
        "a schedule was created or replaced", ("schedule", "cron", "timezone", "name", "queue")
    ),
    events_model.SCHEDULE_PAUSED: Told("a schedule was paused", ("schedule",)),
    events_model.SCHEDULE_RESUMED: Told("a schedule was resumed", ("schedule",)),
    events_model.SCHEDULE_REMOVED: Told("a schedule was removed", ("schedule",)),
    agents_model.AGENT_REGISTERED: Told(
        "an agent was registered, or its registration was updated", ("agent", "max_tasks"), ("type", "capabilities")
    ),
    "agent.active": Told("an agent was activated: it can start tasks again", ("agent",)),
    "agent.draining": Told("an agent was drained: it starts no new tasks", ("agent",)),
    "agent.offline": Told("an agent was marked as offline: it starts no new tasks", ("agent",)),
    agents_model.AGENT_REMOVED: Told("an agent was removed", ("agent",)),
    locks_rules.ACQUIRED: Told("a lock was free and is held now", _LOCK, _LOCK_MAYBE),
    locks_rules.QUEUED: Told("a request waits in the wait queue of a lock", _LOCK, _LOCK_MAYBE),
    locks_rules.PROMOTED: Told("a waiting request was granted the lock", _LOCK, _LOCK_MAYBE),
    locks_rules.UPGRADED: Told("a shared lock has become exclusive, under a new fencing token", _LOCK, _LOCK_MAYBE),
    locks_rules.DOWNGRADED: Told("an exclusive lock has become shared", _LOCK, _LOCK_MAYBE),
    locks_rules.RELEASED: Told("a lock was released, or a request left the wait queue", _LOCK, _LOCK_MAYBE),
    locks_rules.EXPIRED: Told("a lease expired, or a wait timed out", _LOCK, (*_LOCK_MAYBE, "reason")),
    locks_rules.LOST: Told(
        "a lock, or a place in the wait queue, was released by force", (*_LOCK, "reason", "by"), _LOCK_MAYBE
    ),
    locks_rules.DEADLOCK: Told(
        "a deadlock was resolved, and this request or run was the victim", (*_LOCK, "cycle"), _LOCK_MAYBE
    ),
    inbox.EVENT_OF[inbox.ItemEnqueued]: Told("an item was put into the inbox of a conversation", _ITEM),
    inbox.EVENT_OF[inbox.ItemDropped]: Told(
        "an item was dropped for a new one, or rejected, because the inbox is full", (*_ITEM, "reason")
    ),
    inbox.EVENT_OF[inbox.ItemRemoved]: Told("an item was removed", _ITEM),
    inbox.EVENT_OF[inbox.InboxCleared]: Told(
        "all waiting items were removed, or a batch was abandoned", ("inbox_id", "reason", "cleared_count", "item_ids")
    ),
    inbox.EVENT_OF[inbox.InboxBlocked]: Told(
        "items wait, and none can be taken now", ("inbox_id", "reason", "queue_len")
    ),
    inbox.EVENT_OF[inbox.BatchDequeued]: Told("a batch was taken", _BATCH),
    inbox.EVENT_OF[inbox.BatchConfirmed]: Told("the result of the batch is stored, and its items were removed", _BATCH),
    inbox.EVENT_OF[inbox.BatchReturned]: Told(
        "a batch was not finished, and was returned to the head of the inbox", (*_BATCH, "reason")
    ),
    accounts_model.USER_ADDED: Told(
        "an account was created; `reads`, `queues`, and `names` if no role reads everything",
        ("account", "roles", "is_human", "digest"),
        ("owner", "person", "reads", "queues", "names", "login"),
    ),
    accounts_model.USER_CHANGED: Told(
        "an account was changed; the event contains no secrets",
        ("account", "fields", "digest"),
        (
            "roles",
            "roles_before",
            "person",
            "person_before",
            "owner",
            "owner_before",
            "is_active",
            "reads",
            "queues",
            "names",
            "login",
        ),
    ),
    accounts_model.ROLES_CHANGED: Told(
        "in addition to `user.changed`, for the person behind the account: its roles were changed",
        ("account", "roles", "roles_before"),
        ("login",),
    ),
    accounts_model.PASSWORD_SET: Told(
        "in addition to `user.changed`, for the person behind the account: another account set or removed the password,"
        " or created the login link through which it was set; the account cannot vote until its owner has changed it",
        ("account", "set_by"),
        ("login",),
    ),
    accounts_model.PASSWORD_CHANGED: Told(
        "in addition to `user.changed`, for the person behind the account: it changed its own password",
        ("account",),
        ("login",),
    ),
    accounts_model.TOKEN_CREATED: Told(
        "an access token was created by `actor`", ("account", "token", "scopes", "expires_at"), ("login",)
    ),
    accounts_model.TOKEN_REVOKED: Told("an access token was revoked", ("account", "token", "reason")),
    accounts_model.SESSION_OPENED: Told("a person signed in", _SESSION, _SESSION_MAYBE),
    accounts_model.SESSION_CONFIRMED: Told("a person entered the password again", _SESSION, _SESSION_MAYBE),
    accounts_model.SESSION_ENDED: Told(
        "login sessions were ended; expired sessions have no event", ("account", "sessions", "reason")
    ),
    accounts_model.LOGIN_LINK_CREATED: Told("a one-time login link was created", ("account", "expires_at"), ("login",)),
    accounts_model.LOGIN_LINK_USED: Told(
        "in addition to `session.opened`: a login link was used; `link_by` created it, if that was another account",
        _SESSION,
        _SESSION_MAYBE,
    ),
    authorization.ACCESS_REFUSED: Told(
        "an invalid token or session was sent; at most one event per minute and address", ("ip", "given")
    ),
    authorization.FOREIGN_ASKED: Told(
        "an account requested an object of another account, and got 404; at most ten events per minute",
        ("account", "operation", "about"),
    ),
    events_model.AUDIT_ANCHORED: Told(
        "the head of the audit copy, to be stored where the owner of the store cannot change it", ("seq", "hash")
    ),
    approvals_repository.RULEBOOK_CHANGED: Told("another rulebook is in force", ("version", "digest")),
    approvals_repository.SELF_REVIEW_ALLOWED: Told(
        "in addition to `rulebook.changed`: some of its policies allow authors to approve their own tasks",
        ("version", "policies"),
    ),
    runtime.SETTING_CHANGED: Told("a run-time setting was changed or reset", ("name", "old", "new")),
    runtime.FEATURE_CHANGED: Told("a feature was enabled, disabled, or reset", ("name", "old", "new")),
    approvals_model.DELEGATION_CREATED: Told("an account delegated its votes to another account", _DELEGATION),
    approvals_model.DELEGATION_REVOKED: Told("a delegation was revoked", _DELEGATION),
    approvals_model.CYCLE_FOUND: Told("two concurrent delegations closed a cycle; revoke one of them", _DELEGATION),
    **WEBHOOK_EVENTS,
    **APPROVAL_EVENTS,
}

FIELDS: Mapping[str, str] = {
    "about": "the ID of the requested object",
    "account": "the account it is about",
    "agent": "its name",
    "agent_id": "the agent, as its program names it",
    "attempt": "number of the run within its generation, from 1",
    "batch_id": "the batch, counted in its inbox",
    "before": "the earlier values of the changed fields (`run_after` is a moment)",
    "by": "who did it",
    "capabilities": "what the agent can do",
    "cascades": "whether the delegate can delegate further",
    "cleared_count": "how many items",
    "client_message_id": "the sender's ID of the item, or `cm-` and its ID",
    "conditions": "what the delegation is limited to",
    "conversation_id": "the conversation, as the agent's program names it",
    "cost_usd": "cost of all attempts so far, in US dollars",
    "cron": "when it fires",
    "cycle": "the scopes that waited for each other",
    "delay_ms": "milliseconds until the next attempt",
    "delegate": "the account that votes",
    "delegation": "its id",
    "delegator": "the account for which it votes",
    "digest": "SHA-256 of the rulebook, of the record, or of the approved task that runs",
    "edited": "whether the arguments were changed",
    "ended": "`succeeded`, `failed`, or `cut short`",
    "ends_at": "when it ends (a moment)",
    "entry": "the task's place in the order of arrival",
    "error": "type and message of the error, cut to 500 characters",
    "hash": "the hash of that entry of the audit copy",
    "priority": "0 (first) to 9 (last)",
    "result_digest": "SHA-256 over the result",
    "seq": "the entry of the audit copy",
    "has_begun": "false if the handler was never called; otherwise left out",
    "expires_at": "when it expires (a moment)",
    "fields": "names of the fields that were changed",
    "generation": "the generation that begins",
    "given": "`token` or `session`",
    "inbox_id": "the inbox, which is the name of its conversation",
    "ip": "the address the request came from",
    "link_by": "the other account that created the login link",
    "set_by": "the account that set the password, or created the login link",
    "login": "the system login name of the person who ran the command on the store itself",
    "is_active": "whether the account is active",
    "is_human": "true for a person, false for a service account",
    "item_id": "the item, counted in its inbox; the event does not contain its text",
    "item_ids": "the items, in their order",
    "items": "the resources, each with its mode and its fencing token (0: not granted)",
    "kind": "kind of failure, see [The life of a task](../explanation/lifecycle.md#failures), of item, or of channel",
    "locks": "the resources it waits or waited for",
    "max_depth": "maximum number of unfinished tasks in the queue; null: no limit",
    "max_tasks": "maximum number of concurrent tasks of the agent",
    "merged_count": "how many items",
    "model": "the model the agent works with",
    "name": "the name of the task, the setting, or the feature",
    "names": "the tasks that the account is bound to; empty: none",
    "namespace": "the namespace of the lock",
    "new": "the new value; null: none is stored, so files and defaults apply",
    "new_worker": "the worker that took the task over",
    "operation": "the requested operation, as the HTTP interface names it",
    "old": "the previous value; null: none was stored",
    "owner": "the person who owns the service account",
    "owner_before": "the previous owner",
    "parent_id": "the task that enqueued this one",
    "person": "the name that all accounts of one person have in common; empty: that of the account itself",
    "person_before": "the same before the change",
    "policies": "their ids",
    "previous_worker": "the lost worker",
    "purpose": "the purpose of the lock, as its holder named it",
    "queue": "the queue, or the task's queue",
    "queue_len": "how many items wait afterwards",
    "queue_len_after": "how many items wait afterwards",
    "queues": "the queues that the account is bound to; empty: none",
    "reads": "what the account reads, if no role reads everything: `own` or `all`",
    "reason": "the reason, from a person or from ADE",
    "request_id": "the lock request, which is also the grant",
    "roles": "all its roles after the change",
    "roles_before": "all its roles before the change",
    "run_after": "when it can be claimed, if that is later than the event (a moment)",
    "run_id": "the ID of the run",
    "schedule": "its name",
    "scope": "the unit that holds and waits, such as a run",
    "scopes": "its permissions",
    "session": "the beginning of the hash of the session's secret",
    "session_id": "the session of the agent's program",
    "sessions": "the same for each session",
    "source": "the source of the item: user, task_notification, subagent, or system",
    "starts_at": "when it begins (a moment)",
    "state": "the state of the request: granted, waiting, or victim",
    "status": "the first status of the task",
    "subagent_type": "the type of agent",
    "timezone": "the time zone of its cron expression",
    "token": "the id of the token",
    "task_id": "the task it is about; the event itself belongs to none",
    "tokens": "tokens of all attempts so far",
    "tool_calls": "number of tool calls",
    "turns": "turns of all attempts so far",
    "type": "the type of the agent, or of the event that is sent",
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
