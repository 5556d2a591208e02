"""All errors below the front ends. The docstring of a class is its default message, and `code` is stable."""

import inspect
from collections.abc import Iterable, Sequence

from ade.failures import TaskError

# Advice is for users of the command line, so it is kept apart from messages that are also sent over HTTP.


def with_advice(message: str, advice: str | None) -> str:
    """Join a message and its advice, for the command line."""
    if not advice:
        return message
    return f"{message} {advice}." if message.endswith(".") else f"{message}; {advice}"


def close_names(name: str, names: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known names that were probably meant, the closest first."""
    from difflib import get_close_matches  # 0.5 ms at startup, and needed only after a mistake

    return get_close_matches(name, list(names), n=most, cutoff=cutoff)


class AdeError(Exception):
    """ADE could not do that."""

    code = "ade_error"
    usual_advice = ""  # the advice if there is no detail

    def __init__(self, detail: str = "", *, advice: str = "") -> None:
        super().__init__(detail or inspect.cleandoc(type(self).__doc__ or ""))
        self.advice = advice or ("" if detail else self.usual_advice)

    def __str__(self) -> str:
        return with_advice(self.detail, self.advice)

    @property
    def detail(self) -> str:
        return str(self.args[0])


class InvalidTask(AdeError):
    """The task's options are not valid. Nothing was stored; correct them and enqueue again."""

    code = "invalid_task"


class InvalidArguments(AdeError):
    """The arguments do not fit the task's signature. Nothing was stored; correct them and try again."""

    code = "invalid_arguments"


class InvalidResult(AdeError):
    """The result does not fit the type the task declares."""

    code = "invalid_result"


class UnknownTask(AdeError):
    """No task with this id exists. It may have been pruned."""

    code = "unknown_task"
    usual_advice = "`ade tasks` lists the stored tasks"


class UnknownName(AdeError):
    """No task is registered under this name. Check the spelling."""

    code = "unknown_name"
    usual_advice = "--app names the app that defines it"


class UnknownQueue(AdeError):
    """No queue with this name exists yet."""

    code = "unknown_queue"
    usual_advice = "`ade queues list` shows those that do"


class UnknownDependency(AdeError):
    """A task named in `after` does not exist. Nothing was stored."""

    code = "unknown_dependency"


class DependencyCycle(AdeError):
    """The tasks depend on each other in a cycle, so none could ever run. Nothing was stored."""

    code = "dependency_cycle"


class IdempotencyConflict(AdeError):
    """This idempotency key was used before with other arguments. Use another key or the same arguments."""

    code = "idempotency_conflict"


class QueueFull(AdeError):
    """The queue takes no more tasks for now. Try again after the time given in `retry_after` (seconds)."""

    code = "queue_full"

    def __init__(self, detail: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class PayloadTooLarge(AdeError):
    """Arguments or result are larger than the hard limit. Store them elsewhere and pass a reference."""

    code = "payload_too_large"


class IllegalTransition(AdeError):
    """The task's status does not allow this step."""

    code = "illegal_transition"


class StaleWrite(AdeError):
    """The record changed while you were deciding. Read it again and decide again."""

    code = "stale_write"


class StaleLease(StaleWrite):
    """This run no longer holds the task's lease; its result was discarded."""

    code = "stale_lease"


class InvalidSchedule(AdeError):
    """The schedule is not valid. Nothing was stored."""

    code = "invalid_schedule"


class UnknownSchedule(AdeError):
    """No schedule with this name exists."""

    code = "unknown_schedule"
    usual_advice = "`ade schedules list` shows those that do"


class EffectUnknown(AdeError):
    """An earlier run began this effect and never reported its end, so whether it happened is unknown.

    Find out, then settle it with `ctx.settle(key, answer)` or `ctx.forget(key)`.
    """

    code = "effect_unknown"


class EffectInProgress(AdeError):
    """Another live run is performing this effect now. Try again later."""

    code = "effect_in_progress"


class RunOver(AdeError):
    """The run that this context belongs to is over. End the threads you start before the function returns."""

    code = "run_over"


class UnguardedMain(AdeError):
    """This script runs its main part when it is imported; put that under `if __name__ == "__main__":`."""

    code = "unguarded_main"


class TaskFailed(AdeError):
    """The task failed for good; it is in the dead letter queue. `error` says what went wrong."""

    code = "task_failed"

    def __init__(self, detail: str = "", *, task_id: str | None = None, error: TaskError | None = None) -> None:
        super().__init__(detail)
        self.task_id = task_id
        self.error = error


class TaskCancelled(AdeError):
    """The task was cancelled or rejected, so it has no result."""

    code = "task_cancelled"

    def __init__(self, detail: str = "", *, task_id: str | None = None, reason: str | None = None) -> None:
        super().__init__(detail)
        self.task_id = task_id
        self.reason = reason


class ResultExpired(AdeError):
    """The task completed, but its result expired after its result_ttl."""

    code = "result_expired"


class WaitTimeout(AdeError):
    """The task did not finish within the time limit. It continues; wait again."""

    code = "wait_timeout"


class WouldBlock(AdeError):
    """`.wait()` was called on a thread that runs an event loop, which it would block. Use `await` there."""

    code = "would_block"


class StoreError(AdeError):
    """The store could not do that."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store could not be reached or written. Nothing is known to be lost; try again."""

    code = "store_unavailable"

    # If other parts of the store responded, the answer to each item of the call: None if it was stored, the error of a
    # rejected one, and StoreUnavailable if it is unknown. The whole call can be repeated.
    answers: Sequence[AdeError | None] = ()


class AddressInUse(AdeError):
    """The address is not available. Stop the program that uses it, or choose another with --host and --port."""

    code = "address_in_use"


class NeedsStore(AdeError):
    """This is done on the store itself, not through a server. Run it where the store is, without --url."""

    code = "needs_store"


class ServerUnreachable(AdeError):
    """The server could not be reached, or closed the connection. Check its address and that it is running."""

    code = "server_unreachable"

    def __init__(self, detail: str = "", *, was_sent: bool = False) -> None:
        super().__init__(detail)
        self.was_sent = was_sent  # whether the server might have executed the request


class StoreCorrupt(StoreError):
    """The database file is damaged. Restore the newest backup; do not write to it."""

    code = "store_corrupt"


class StoreReadOnly(StoreError):
    """The database file or its folder cannot be written. Check its owner, mode and mount."""

    code = "store_read_only"


class StoreReplaced(StoreUnavailable):
    """A file of the database was removed or replaced while in use. Nothing more is written; save what is still open."""

    code = "store_replaced"


class StoreTooNew(StoreError):
    """The store was upgraded by a newer version of ADE. Restart with that version; nothing was changed."""

    code = "store_too_new"


class StoreTooOld(StoreError):
    """The store was written by an older version of ADE and must be upgraded first. Nothing was changed."""

    code = "store_too_old"
    usual_advice = "`ade upgrade` copies the store and upgrades it"


class StoreForeign(StoreError):
    """The file is an SQLite database of another program. Choose another path; nothing was changed."""

    code = "store_foreign"


class StoreMissing(StoreError):
    """There is no store at this location yet. Check the URL."""

    code = "store_missing"
    usual_advice = "`ade up` or `ade enqueue` creates one"


class StoreUnsupported(StoreError):
    """This location or this SQLite library is not safe for a database that must not lose work."""

    code = "store_unsupported"


class DriverMissing(StoreError):
    """The driver for this kind of store is not installed. Install the extra that the message names."""

    code = "driver_missing"


class DiskFull(StoreError):
    """The disk is (nearly) full, so no new work is accepted. Running tasks can finish. Free some space."""

    code = "disk_full"


class StoreFull(DiskFull):
    """The server's memory is full, so no new work is accepted. Running tasks can finish. Give it more memory."""

    code = "store_full"


# The store recovers, or is repaired: what it did not take can be sent again, and no task is to blame.
STORE_TROUBLE = (StoreUnavailable, StoreUnsupported, StoreReadOnly, DiskFull)


class NotConfirmed(StoreError):
    """The work is accepted, but too few replicas have confirmed it in time. With a key, enqueuing again is safe."""

    code = "not_confirmed"

    def __init__(self, detail: str = "", *, answer: object = None) -> None:
        super().__init__(detail)
        self.answer = answer  # the response of the store, for callers that continue anyway


class InvalidUrl(AdeError):
    """The store URL is not supported, or not complete. Use sqlite:///path/to/file.db, memory:// or redis://host."""

    code = "invalid_url"


class InvalidFilter(AdeError):
    """The filter is not valid."""

    code = "invalid_filter"


class AuditBroken(AdeError):
    """The audit chain is broken: an entry was changed, removed, or added outside ADE."""

    code = "audit_broken"


class InvalidLock(AdeError):
    """The lock's name or options are not valid. Nothing was requested; correct them and try again."""

    code = "invalid_lock"


class TooManyLocks(AdeError):
    """The owner holds, or the resource has, as many locks or waiters as are allowed. Try again later."""

    code = "too_many_locks"


class LockRateLimited(AdeError):
    """The owner has exceeded its rate limit for locks. Try again after `retry_after_ms` milliseconds."""

    code = "lock_rate_limited"

    def __init__(self, detail: str = "", *, retry_after_ms: int = 1_000) -> None:
        super().__init__(detail)
        self.retry_after_ms = retry_after_ms


class LockLost(AdeError):
    """The lock is no longer held: its lease expired, or it was taken away. Stop, and acquire it again if needed."""

    code = "lock_lost"


class UpgradeDeadlock(AdeError):
    """Another holder of this shared lock waits to upgrade it. Release yours, so that one of you can continue."""

    code = "upgrade_deadlock"


class LockTimeout(AdeError):
    """The lock was held by another owner the whole time. Try again later, or wait longer."""

    code = "lock_timeout"


class LockPlaceLost(AdeError):
    """The place in the wait queue is gone before the wait time was over. Request the lock again."""

    code = "lock_place_lost"


class LockNotPermitted(AdeError):
    """The rulebook does not allow this account to lock this resource. Ask an admin to change the rulebook."""

    code = "lock_not_permitted"


class DeadlockVictim(AdeError):
    """This owner was the victim of a deadlock. Release all your locks and try again."""

    code = "deadlock_victim"

    def __init__(self, detail: str = "", first_seq: int = 0) -> None:
        super().__init__(detail)
        self.first_seq = first_seq  # pass it with the next request to keep the old position in the queue


class StaleToken(AdeError):
    """The write was rejected: its lock is held by another owner now. Stop; your data is out of date."""

    code = "stale_token"


class InvalidAgent(AdeError):
    """The agent's name or max_tasks is not valid. Nothing was stored; correct it and try again."""

    code = "invalid_agent"


class InvalidProfile(AdeError):
    """The profile of an agent type is not valid, so nothing of that type can run. Correct what the message names."""

    code = "invalid_profile"


class UnknownWorker(AdeError):
    """No worker with this id exists, or it is not yours."""

    code = "unknown_worker"
    usual_advice = "`ade workers` lists them"


class UnknownAgent(AdeError):
    """No agent with this name exists."""

    code = "unknown_agent"
    usual_advice = "`ade agents list` shows those that do"


class ProgramNotStarted(AdeError):
    """The agent's program could not be started. Check its name, its mode and the working directory."""

    code = "program_not_started"


class InvalidWebhook(AdeError):
    """The webhook's URL, event types, secret or description are not valid. Nothing was stored; correct them."""

    code = "invalid_webhook"


class UnknownWebhook(AdeError):
    """No webhook with this id exists, or no such delivery of it is stored. The list of webhooks shows them."""

    code = "unknown_webhook"


class InvalidNotification(AdeError):
    """The channel or the notification preferences are not valid. Nothing was stored; correct them and try again."""

    code = "invalid_notification"


class UnknownChannel(AdeError):
    """No notification channel with this id exists, or no such delivery is stored."""

    code = "unknown_channel"
    usual_advice = "`ade notify channels` and `ade notify log` show those that do"


class AddressRefused(AdeError):
    """No webhook may reach this network address. An administrator can allow its network."""

    code = "address_refused"


class InvalidSignature(AdeError):
    """The signature of a webhook message is not valid, or the message is too old. Do not trust it."""

    code = "invalid_signature"


class InvalidInbox(AdeError):
    """The id of an inbox, the name of its consumer, or its memory is not valid. Nothing was stored."""

    code = "invalid_inbox"


class NotPermitted(AdeError):
    """This account does not have the permission for that. An administrator can give it a role that does."""

    code = "not_permitted"
