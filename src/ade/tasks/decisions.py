"""Decisions on tasks: pure functions that turn a record into the Change to write, and fingerprints of failures."""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Raw, structs

from ade.approvals.model import GateState, PastRun, Review, closed_review, edited, with_editor
from ade.errors import AdeError, IllegalTransition, InvalidTask
from ade.events.model import ALERT, Event, content_digest
from ade.failures import FAILURES, MAX_THROTTLES, FailureKind, TaskError, grown_timeout_ms
from ade.tasks.admission import LAST_MOMENT, check_task, is_own_step, needs_of
from ade.tasks.changes import Change, ChangePrecondition, change
from ade.tasks.identifiers import NOTIFY_PERSON
from ade.tasks.lifecycle import CLAIMABLE, Status, Verb
from ade.tasks.model import AfterFailure, Task
from ade.tasks.outcomes import Deferred, Failed, Outcome, Released, Succeeded, Withheld


def run_timeout_ms(task: Task) -> int | None:
    """Return the time limit of this run; it grows after every timeout."""
    return None if task.timeout_ms is None else grown_timeout_ms(task.timeout_ms, task.timeouts)


def settle(task: Task, outcome: Outcome, *, now: int, randomness: float) -> Change:
    """Turn the outcome of a run into a change of its task, fenced by the run ID."""
    match outcome:
        case Succeeded():
            return succeed(task, outcome, now=now)
        case Failed():
            return fail_run(task, outcome, now=now, randomness=randomness)
        case Released():
            return release(task, outcome, now=now)
        case Deferred():
            return defer(task, outcome, now=now)
        case Withheld():
            return withhold(task, outcome, now=now)


def succeed(task: Task, outcome: Succeeded, *, now: int) -> Change:
    """Complete the task with its result."""
    return change(
        task,
        Verb.SUCCEED,
        now=now,
        guard=ChangePrecondition(run_id=task.run_id),
        payload={
            "attempt": task.attempt,
            "run_id": task.run_id,
            "worker": task.worker_id,
            **_approved(task),
            **({} if task.digest is None else {"result_digest": content_digest(outcome.result)}),
        },
        worker_id=None,
        lease_until=None,
        finished_at=now,
        result=outcome.result,
        output_ref=outcome.output_ref,
        error=None,
    )


def fail_run(task: Task, failed: Failed, *, now: int, randomness: float) -> Change:
    """Retry the task later or fail it, as the failure policy of the error kind prescribes."""
    if task.status is not Status.RUNNING:  # the transition table lets a pending task fail, but not by a run
        raise IllegalTransition(f"no run can fail on a task that is {task.status}; only a running one")
    policy = FAILURES[failed.error.kind]
    counts = policy.counts or task.throttles >= MAX_THROTTLES
    guard = ChangePrecondition(run_id=task.run_id)
    if policy.retry and failed.error.retryable and not (counts and task.attempt >= task.max_attempts):
        return _retry(
            task, failed, counts=counts, grows=policy.grows_timeout, guard=guard, now=now, randomness=randomness
        )
    return _fail(task, failed.error, guard=guard, now=now, has_begun=failed.has_begun)


def _retry(
    task: Task, failed: Failed, *, counts: bool, grows: bool, guard: ChangePrecondition, now: int, randomness: float
) -> Change:
    failures = task.attempt if counts else task.throttles + 1
    delay = max(task.backoff.delay_ms(failures, randomness), failed.retry_after_ms or 0)
    if failed.error.kind is FailureKind.RETRY_ASKED and failed.retry_after_ms is not None:
        delay = failed.retry_after_ms
    delay = min(max(delay, 0), LAST_MOMENT - now)  # a handler can request any delay
    payload: dict[str, object] = {
        "attempt": task.attempt,
        "run_id": task.run_id,
        "delay_ms": delay,
        "error": f"{failed.error.type}: {failed.error.message}"[:500],
        **_approved(task),
    }
    return change(
        task,
        Verb.RETRY,
        now=now,
        guard=guard,
        payload=payload,
        worker_id=None,
        lease_until=None,
        run_after=now + delay,
        error=failed.error,
        attempt=task.attempt if counts else task.attempt - 1,
        throttles=task.throttles if counts else task.throttles + 1,
        timeouts=task.timeouts + 1 if grows else task.timeouts,
    )


def _fail(
    task: Task,
    error: TaskError,
    *,
    guard: ChangePrecondition,
    now: int,
    has_begun: bool = True,
    also: Mapping[str, object] | None = None,
) -> Change:
    payload: dict[str, object] = {
        "attempt": task.attempt,
        "run_id": task.run_id,
        "kind": error.kind,
        "error": f"{error.type}: {error.message}"[:500],
        **_begun(has_begun),
        **(_approved(task) if has_begun else {}),
    }
    alerts = (Event(type=ALERT, at=now, task_id=task.id, payload=payload),) if FAILURES[error.kind].alert else ()
    return change(
        task,
        Verb.FAIL,
        now=now,
        guard=guard,
        payload=payload,
        more_events=alerts,
        worker_id=None,
        lease_until=None,
        finished_at=now,
        error=error,
        also=also,
    )


def release(task: Task, outcome: Released, *, now: int) -> Change:
    """Return the task to the queue unfinished; the run does not count as an attempt."""
    about = {"attempt": task.attempt, "run_id": task.run_id, "worker": task.worker_id, "reason": outcome.reason}
    return change(
        task,
        Verb.RELEASE,
        now=now,
        guard=ChangePrecondition(run_id=task.run_id),
        payload={**about, **_begun(outcome.has_begun)},
        worker_id=None,
        lease_until=None,
        attempt=task.attempt - 1,
        also={"run_after": now + outcome.delay_ms} if outcome.delay_ms else None,
    )


def defer(task: Task, outcome: Deferred, *, now: int) -> Change:
    """Let the task wait for its locks; the run does not count as an attempt."""
    return change(
        task,
        Verb.DEFER,
        now=now,
        guard=ChangePrecondition(run_id=task.run_id),
        payload={"run_id": task.run_id, "worker": task.worker_id, "locks": list(outcome.resources)},
        worker_id=None,
        lease_until=None,
        run_after=now + outcome.look_again_ms,
        attempt=task.attempt - 1,
    )


def withhold(task: Task, outcome: Withheld, *, now: int) -> Change:
    """Let the task wait for an approval, without a lease; the run does not count as an attempt."""
    return change(
        task,
        Verb.HOLD,
        now=now,
        target=outcome.status,
        guard=ChangePrecondition(run_id=task.run_id),
        payload={
            "run_id": task.run_id,
            "worker": task.worker_id,
            "reason": outcome.reason,
            **_begun(outcome.has_begun),
        },
        more_events=outcome.events,
        worker_id=None,
        lease_until=None,
        attempt=task.attempt - 1,
        also=outcome.fields,
    )


def _approved(task: Task) -> dict[str, object]:
    """The end of a run is logged with the digest that ran, if people or a policy had to approve it."""
    return {} if task.digest is None or task.status is not Status.RUNNING else {"digest": task.digest}


def _begun(has_begun: bool) -> dict[str, object]:
    """A run that ended before its handler was called is marked in the log, so that nothing is undone that never ran."""
    return {} if has_begun else {"has_begun": False}


def requeue(task: Task, *, now: int) -> Change:
    """The locks were granted: make the task claimable immediately."""
    payload: dict[str, object] = {"locks": [spec.resource for spec in task.locks]}
    return change(task, Verb.RECALL, now=now, payload=payload, run_after=now)


def reschedule(
    task: Task,
    *,
    now: int,
    priority: int | None = None,
    run_after: int | None = None,
    waits_for_locks: bool = False,
    actor: str | None = None,
) -> Change | None:
    """Change the priority of a pending task, its start time, or both. None if it has both already.

    A start time in the past means now. An approval covers neither, so it stays valid; but a task never starts outside
    the window that was approved, or after its deadline. Raises IllegalTransition unless the task is pending, and
    InvalidTask.
    """
    if task.status is not Status.PENDING:
        raise IllegalTransition(f"task {task.id} is {task.status}: only a pending task can be rescheduled")
    if task.name == NOTIFY_PERSON:
        raise InvalidTask(f"{task.name} is an internal task of ADE that notifies a person, and cannot be rescheduled")
    fields: dict[str, object] = {}
    if priority is not None and priority != task.priority:
        fields["priority"] = priority
    if run_after is not None and (start := max(run_after, now)) != max(task.run_after, now):
        _check_start(task, start)
        fields["run_after"] = start
    if not fields:
        return None
    payload = {**fields, "before": {name: getattr(task, name) for name in fields}}
    if task.locks and ("run_after" in fields or waits_for_locks):
        fields["reschedules"] = task.reschedules + 1
        fields.setdefault("run_after", now)  # to request its locks again, with its new priority
    return change(task, Verb.RESCHEDULE, now=now, actor=actor, payload=payload, also=fields)


def _check_start(task: Task, start: int) -> None:
    """Raise InvalidTask if the task could not start at this time."""
    review = task.review
    if review is not None and review.not_before is not None and start < review.not_before:
        raise InvalidTask(f"task {task.id} was approved for {_window(review)}, and cannot start before that")
    if review is not None and review.not_after is not None and start >= review.not_after:
        raise InvalidTask(f"task {task.id} was approved for {_window(review)}, and cannot start after that")
    if start > LAST_MOMENT:
        raise InvalidTask("run_at is too far in the future; choose a time before the year 10000")
    if task.deadline is not None and start >= task.deadline:
        raise InvalidTask(
            f"task {task.id} would fail at its deadline, {_utc(task.deadline)}, before it starts; name an earlier time"
        )


def _window(review: Review) -> str:
    return " to ".join(_utc(each) for each in (review.not_before, review.not_after) if each is not None)


def _utc(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="seconds")


def lose_lease(task: Task, *, now: int) -> Change:
    """The lease expired: stall the task so that another worker can claim it, or fail it on its last attempt."""
    guard = ChangePrecondition(version=task.version, lease_until=task.lease_until)
    if task.attempt >= task.max_attempts:
        message = f"the worker {task.worker_id} went silent during attempt {task.attempt} of {task.max_attempts}"
        error = TaskError(kind=FailureKind.WORKER_DIED, type="WorkerDied", message=message)
        return _fail(task, error, guard=guard, now=now)
    return change(
        task,
        Verb.STALL,
        now=now,
        guard=guard,
        payload={"attempt": task.attempt, "run_id": task.run_id, "worker": task.worker_id, **_approved(task)},
        lease_until=None,  # worker_id stays: the next claim reports the previous worker
    )


def cancel(task: Task, reason: str | None, *, now: int, actor: str | None = None) -> Change:
    """Cancel the task immediately, in any unfinished status; a stale result is rejected. Raises InvalidTask for the
    delivery of a notification."""
    check_removable(task)
    return change(
        task,
        Verb.CANCEL,
        now=now,
        actor=actor,
        payload={**({"reason": reason} if reason else {}), "attempt": task.attempt, **_approved(task)},
        worker_id=None,
        lease_until=None,
        finished_at=now,
        reason=reason,
        also=_without_gate(task, reason or "", now),
    )


def _without_gate(task: Task, reason: str, now: int) -> dict[str, object]:
    """Cancel the gate of a task that ends before it runs, so that no one can vote on it."""
    return {} if task.review is None else {"review": closed_review(task.review, GateState.CANCELLED, now, reason)}


def break_chain(task: Task, *, failed_ids: tuple[str, ...], now: int) -> Change:
    """A dependency did not complete: cancel or fail the task, as its `after_failure` requires."""
    message = f"it waits for {', '.join(failed_ids)}, which did not complete"
    if task.after_failure is AfterFailure.FAIL:
        error = TaskError(kind=FailureKind.DEPENDENCY_FAILED, type="DependencyFailed", message=message, retryable=False)
        guard = ChangePrecondition(version=task.version)
        return _fail(task, error, guard=guard, now=now, also=_without_gate(task, message, now))
    return cancel(task, f"dependency failed: {message}", now=now)


MISSED = "its deadline passed before it ran"


def is_overdue(task: Task, now: int) -> bool:
    """Whether the deadline of a task has passed, so that no run of it may start."""
    return task.deadline is not None and now >= task.deadline


def deadline_error(reason: str = MISSED) -> TaskError:
    """Return the error of a task that can no longer start in time."""
    return TaskError(kind=FailureKind.DEADLINE_PASSED, type="DeadlinePassed", message=reason, retryable=False)


def miss_deadline(task: Task, *, now: int, reason: str = MISSED) -> Change:
    """Fail a task that no run holds and that can no longer start in time. No one can vote on it afterwards."""
    also = None if task.status in CLAIMABLE else _without_gate(task, reason, now)
    return _fail(task, deadline_error(reason), guard=ChangePrecondition(version=task.version), now=now, also=also)


def _check_editable(task: Task) -> None:
    """Raise InvalidTask for a task of ADE itself: a preview of other arguments would be shown for its task, and a
    rollback would undo what never ran."""
    if is_own_step(task.name):
        raise InvalidTask(f"{task.name} is an internal task of ADE, whose arguments cannot be changed")


def check_removable(task: Task) -> None:
    """Raise InvalidTask for a task that delivers a notification: otherwise an attacker could take over an account, and
    the person would not be notified."""
    if task.name == NOTIFY_PERSON:
        raise InvalidTask(
            f"{task.name} is an internal task of ADE that notifies a person, and can be neither cancelled nor discarded"
        )


def _remembered(task: Task) -> Review | None:
    """Return the review with what was signed last, before the task changes."""
    if task.review is None or task.review.gate is None:
        return task.review
    from ade.approvals.digest import remembered  # costs 3 ms, which commands without reviews avoid

    return remembered(task)


def replay(
    task: Task,
    *,
    now: int,
    preview_id: str | None = None,
    actor: str | None = None,
    args: Raw | None = None,
    ran: PastRun | None = None,
    required: tuple[str, ...] = (),
) -> Change:
    """Run a dead letter again as a new generation with fresh attempts, optionally with corrected arguments.

    A governed task is submitted, and joins its queue only once it is approved again. `preview_id` is for its next
    preview; `required` are the policies that the guard demands for the corrected arguments.
    """
    if args is not None:
        _check_editable(task)
    fields: dict[str, object] = {} if args is None else {"args": args}
    remembers = _remembered(task)
    review = remembers if args is None else edited(remembers, actor, now, ran)
    if required:
        review = structs.replace(review or Review(), required=required)
    is_governed = review is not None and review.is_governed
    if review is not None and is_governed:
        review = closed_review(review, GateState.SUPERSEDED, now)
        review = with_editor(review, actor)  # an account that requests another run cannot approve it
        review = structs.replace(review, preview_id=preview_id if review.has_preview else None)
        fields |= {"submitted_at": now, "approved_at": None, "preview": None, "digest": None, "risk": None}
    if review is not task.review:
        fields["review"] = review
    return change(
        task,
        Verb.REPLAY,
        now=now,
        target=Status.SUBMITTED if is_governed else Status.PENDING,
        actor=actor,
        payload={"generation": task.generation + 1, "edited": args is not None},
        generation=task.generation + 1,
        attempt=0,
        timeouts=0,
        throttles=0,
        worker_id=None,
        run_after=now,
        deadline=None,
        started_at=None,
        finished_at=None,
        error=None,
        discarded=False,
        reason=None,
        also=fields,
    )


def discard(task: Task, reason: str, *, now: int, actor: str | None = None) -> Change:
    """Discard a dead letter and record the reason. Raises InvalidTask without a reason, and for the delivery of a
    notification."""
    check_removable(task)
    if not reason.strip():
        raise InvalidTask("give a reason for discarding the task; it is stored with it")
    return change(task, Verb.DISCARD, now=now, actor=actor, payload={"reason": reason}, discarded=True, reason=reason)


def edit(task: Task, *, now: int, actor: str | None = None, ran: PastRun | None = None, **fields: object) -> Change:
    """Change a draft and check it like a new task. Its dependencies cannot change."""
    if fields.keys() & {"depends_on", "after_failure"}:
        raise InvalidTask("what a draft waits for cannot be changed; make a new draft instead")
    if "args" in fields:
        _check_editable(task)
    about: dict[str, object] = {"fields": sorted(fields)}
    if "needs" in fields:
        fields["needs"] = needs_of(fields["needs"])  # type: ignore[arg-type]  # checked there
    review = edited(_remembered(task), actor, now, ran)
    also = {**fields, "review": review, "preview": None, "digest": None, "risk": None, "approved_at": None}
    after_edit = change(task, Verb.EDIT, now=now, actor=actor, payload=about, also=also)
    check_task(after_edit.after)
    return after_edit


# Fingerprints group failures with the same cause: numbers, IDs, and quoted values are ignored.


_VARIABLE = (
    (re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.I), "<id>"),
    (re.compile(r"0x[0-9a-f]+", re.I), "<address>"),
    (re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\""), "<text>"),  # the apostrophe of "can't" does not open a quotation
    (re.compile(r"\b[0-9a-f]{12,}\b", re.I), "<hex>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
)

_MOST_SCANNED, _LONGEST_PATTERN = 3_000, 300


class UnknownFingerprint(AdeError):
    """No dead letter has this fingerprint."""

    code = "unknown_fingerprint"
    usual_advice = "`ade dlq list` shows them"


def pattern(message: str) -> str:
    """Return the first line of the message with every variable part replaced by a placeholder."""
    lines = message.strip().splitlines()
    first = lines[0][:_MOST_SCANNED] if lines else ""
    for variable, word in _VARIABLE:
        first = variable.sub(word, first)
    return first[:_LONGEST_PATTERN]  # truncate last: a truncated value would not match


def fingerprint(name: str, error: TaskError) -> str:
    """Return a short, stable hash: equal for tasks of the same name that failed in the same way."""
    text = f"{name}\n{error.type}\n{pattern(error.message)}"
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
