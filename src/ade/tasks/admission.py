"""Admission of new tasks: checks of names, keys, times, dependencies, and queue limits, and the first events."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from ade.accounts.model import SYSTEM
from ade.errors import DependencyCycle, IdempotencyConflict, InvalidTask, QueueFull, UnknownDependency
from ade.events.model import Event
from ade.locks.model import check_priority, merged
from ade.tasks.changes import EVENT_OF
from ade.tasks.identifiers import DELIVER, NOTIFY, NOTIFY_PERSON, is_task_id
from ade.tasks.lifecycle import BIRTHS, Verb
from ade.tasks.model import Task, capabilities_of

LAST_MOMENT = 253_402_300_799_000  # the end of the year 9999, the latest valid time
PREVIEW_SUFFIX, ROLLBACK_SUFFIX = OWN_SUFFIXES = (":preview", ":rollback")
_OWN_NAMES = frozenset({NOTIFY, DELIVER, NOTIFY_PERSON})
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,199}")
_MAX_TAGS, _MAX_TAG, _MAX_KEY, _MAX_DEPENDENCIES, _MAX_ATTEMPTS = 50, 100, 500, 1000, 1000
_MAX_REFERENCE = 200  # characters of a team, a ticket, or a display name


def is_rollback(task: Task) -> bool:
    """Whether a task undoes another one."""
    return task.source == SYSTEM and task.name.endswith(ROLLBACK_SUFFIX)


def is_own_step(name: str) -> bool:
    """Whether only ADE itself enqueues tasks of this name."""
    return name.endswith(OWN_SUFFIXES) or name in _OWN_NAMES


def check_queue_name(queue: str) -> None:
    """Raise InvalidTask unless this is a valid queue name."""
    if not _QUEUE.fullmatch(queue):
        raise InvalidTask(
            f"queue {queue[:120]!r} is not a valid name: use letters, digits, '.', '_' and '-', at most 100"
        )


def check_name(name: str) -> None:
    """Raise InvalidTask unless this is a valid task name."""
    if not _NAME.fullmatch(name):
        raise InvalidTask(
            f"task name {name[:120]!r} is not valid: start with a letter or '_', then letters, digits, '_', '.', ':'"
            " and '-', at most 200"
        )


def admit(task: Task, *, now: int) -> Task:
    """Return the task as it will be stored: checked, with its times and the digest of its arguments."""
    admitted = structs.replace(
        task,
        created_at=now,
        updated_at=now,
        run_after=max(task.run_after, 0),
        depends_on=tuple(dict.fromkeys(task.depends_on)),  # duplicates have no effect
        locks=merged(task.locks) if task.locks else (),
        needs=needs_of(task.needs) if task.needs else (),
        args_digest=_args_digest(task),
    )
    check_task(admitted)
    return admitted


def _args_digest(task: Task) -> str | None:
    """Return a digest only if there is an idempotency key: it detects a reuse with other arguments."""
    return hashlib.sha256(bytes(task.args)).hexdigest() if task.idempotency_key is not None else None


def creation_event(task: Task) -> Event:
    """Return the event for a new task."""
    (kind,) = EVENT_OF[Verb.CREATE]
    payload: dict[str, object] = {"queue": task.queue, "name": task.name, "status": task.status}
    if task.parent_id is not None:
        payload["parent_id"] = task.parent_id
    if task.run_after > task.created_at:
        payload["run_after"] = task.run_after
    if task.depends_on:
        payload["waits_for"] = len(task.depends_on)
    return Event(type=kind, at=task.created_at, task_id=task.id, actor=task.author_id, payload=payload)


def birth_events(task: Task) -> tuple[Event, ...]:
    """Return all events for a new task: its creation and, if it needs an approval, its gate."""
    created = creation_event(task)
    if task.review is None or task.review.gate is None:
        return (created,)
    from ade.approvals.votes import gate_events  # costs 7 ms and 500 KiB, which programs without reviews avoid

    return created, *gate_events(task, task.review.gate)


def check_task(task: Task) -> None:
    """Raise InvalidTask unless this new task is valid."""
    check_queue_name(task.queue)
    check_name(task.name)
    check_priority(task.priority)
    _check_identity(task)
    _check_timing(task)
    if task.locks:
        merged(task.locks)
    if task.needs:
        needs_of(task.needs)


def needs_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return the required capabilities as they are stored. Raises InvalidTask."""
    return capabilities_of(words, "needs", InvalidTask)


def _check_identity(task: Task) -> None:
    if task.source != SYSTEM and is_own_step(task.name):
        raise InvalidTask(f"{task.name[:120]} is an internal task of ADE, which only ADE enqueues")
    if not is_task_id(task.id):
        raise InvalidTask(f"task id {task.id[:60]!r} is not a UUID in its lower-case text form")
    if task.status not in BIRTHS:
        raise InvalidTask(f"a new task cannot be {task.status}; it begins as {', '.join(BIRTHS)}")
    for field in ("idempotency_key", "concurrency_key"):
        _check_key(field, getattr(task, field), _MAX_KEY)
    _check_key("team", task.team, _MAX_REFERENCE)
    _check_key("ticket", task.ticket_ref, _MAX_REFERENCE)
    _check_key("author_name", task.author_name, _MAX_REFERENCE)
    if len(task.tags) > _MAX_TAGS or any(not tag or len(tag) > _MAX_TAG or not tag.isprintable() for tag in task.tags):
        raise InvalidTask(f"tags must be at most {_MAX_TAGS}, each of 1 to {_MAX_TAG} printable characters")
    if len(task.depends_on) > _MAX_DEPENDENCIES:
        raise InvalidTask(f"a task may wait for at most {_MAX_DEPENDENCIES} others, got {len(task.depends_on)}")


def _check_key(field: str, key: str | None, most: int) -> None:
    if key is not None and (not key or len(key) > most or not key.isprintable()):
        raise InvalidTask(f"{field} must have 1 to {most} printable characters")


def _check_timing(task: Task) -> None:
    if not 0 <= task.run_after <= LAST_MOMENT:
        raise InvalidTask("run_after is not a time between 1970 and 9999: give a delay in seconds or a datetime")
    if task.deadline is not None and not task.run_after < task.deadline <= LAST_MOMENT:
        raise InvalidTask("the deadline must be after run_after and before the year 10000")
    if not 1 <= task.max_attempts <= _MAX_ATTEMPTS:
        raise InvalidTask(f"max_attempts {task.max_attempts} is not valid: use 1 to {_MAX_ATTEMPTS} (total runs)")
    for field in ("timeout_ms", "result_ttl_ms"):
        value = getattr(task, field)
        if value is not None and not 0 < value <= LAST_MOMENT:
            raise InvalidTask(f"{field.removesuffix('_ms')} must be more than 0 seconds, or absent for none")
    _check_backoff(task)


def _check_backoff(task: Task) -> None:
    backoff = task.backoff
    sane = (
        0 <= backoff.base_ms <= backoff.cap_ms <= LAST_MOMENT
        and 1 <= backoff.multiplier <= 1000
        and 0 <= backoff.jitter <= 1
        and len(backoff.steps_ms) <= _MAX_ATTEMPTS
        and all(0 <= step <= LAST_MOMENT for step in backoff.steps_ms)
    )
    if not sane:
        raise InvalidTask(
            "backoff needs 0 <= base <= cap, multiplier 1 to 1000, jitter 0 to 1, and at most"
            f" {_MAX_ATTEMPTS} steps of 0 or more"
        )


def check_no_cycle(tasks: Sequence[Task]) -> None:
    """Raise DependencyCycle if tasks that are created together depend on each other in a cycle."""
    waits_for = {task.id: task.depends_on for task in tasks}
    done: set[str] = set()
    for task in tasks:
        cycle = _cycle_from(task.id, waits_for, done)
        if cycle:
            raise DependencyCycle(f"these tasks depend on each other in a cycle: {' -> '.join(cycle)}")


def check_no_cycle_of_known(tasks: Sequence[Task]) -> None:
    """Like `check_no_cycle`, after idempotency keys have mapped new tasks to stored ones."""
    try:
        check_no_cycle(tasks)
    except DependencyCycle as error:
        raise DependencyCycle(
            f"{error.detail}, because their idempotency keys make one task of two; nothing was stored"
        ) from None


def with_known_dependencies(task: Task, known: Mapping[str, str]) -> Task:
    """Return the task with dependencies replaced by the stored tasks that have their idempotency keys."""
    if not any(task_id in known for task_id in task.depends_on):
        return task
    names = dict.fromkeys(known.get(task_id, task_id) for task_id in task.depends_on)
    return structs.replace(task, depends_on=tuple(names))


def key_conflict(task: Task, earlier_id: str) -> IdempotencyConflict:
    """Build the error for an idempotency key that was used with other arguments."""
    return IdempotencyConflict(
        f"idempotency key {task.idempotency_key!r} of {task.name!r} was used for task {earlier_id} with other"
        " arguments; nothing was stored"
    )


def unknown_dependency(task_id: str) -> UnknownDependency:
    """Build the error for a dependency that does not exist."""
    return UnknownDependency(f"task {task_id!r} named in `after` does not exist; nothing was stored")


def queue_full(queue: str, *, count: int, depth: int, limit: int, finished: int) -> QueueFull:
    """Build the error for a full queue, with a retry delay.

    The delay is the time to drain the excess at the rate of the last minute, in which `finished` tasks finished.
    """
    excess = depth + count - limit
    retry_after = min(max(excess * 60 / finished, 1.0), 300.0) if finished else 30.0
    return QueueFull(
        f"queue {queue!r} holds {depth} unfinished tasks and takes at most {limit}; {count} more do not fit."
        f" Try again in {retry_after:.0f} s",
        retry_after=retry_after,
    )


def _cycle_from(start: str, waits_for: dict[str, tuple[str, ...]], done: set[str]) -> list[str]:
    """Return a cycle reachable from `start`, or an empty list. Iterative, because chains can be long."""
    path: list[str] = []
    on_path: set[str] = set()
    stack: list[tuple[str, Iterable[str] | None]] = [(start, None)]
    while stack:
        node, rest = stack.pop()
        if rest is None:
            if node in on_path:
                return [*path[path.index(node) :], node]
            if node in done or node not in waits_for:
                continue
            path.append(node)
            on_path.add(node)
            rest = iter(waits_for[node])
        following = next(iter(rest), None)
        if following is None:
            done.add(node)
            path.pop()
            on_path.discard(node)
        else:
            stack.append((node, rest))
            stack.append((following, None))
    return []
