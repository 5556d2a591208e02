"""Plain tasks, for lua/lib/plain.lua: their state is packed here, so that the server only has to compare it."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from ade.stores.redis.codec import LENGTH, as_text, check_depth, detail_of, outcome_of, packed_event, result_expiry
from ade.tasks.changes import Change
from ade.tasks.decisions import creation_event
from ade.tasks.lifecycle import Status, Verb
from ade.tasks.model import Task

_ARRAY = b"\xdc" + LENGTH.to_bytes(2, "big")  # what a state begins with
_OWN_HEAD = 3  # bytes that tell how long a packed list of 16 to 65535 values is
_SUCCESS = frozenset({"worker_id", "lease_until", "finished_at", "result", "output_ref", "error"})
_pack = msgspec.msgpack.Encoder().encode
Kind = tuple[str, str, int]  # queue, name, priority
PlainTask = tuple[str, Raw, Raw]  # id, detail, event


def is_plain(task: Task) -> bool:
    """Whether lua/add_plain.lua can store a new task."""
    return (
        task.status is Status.PENDING
        and task.version == 1
        and task.attempt == 0
        and task.generation == 1
        and task.idempotency_key is None
        and not task.depends_on
        and task.deadline is None
        and not task.needs
        and task.parent_id is None
        and task.review is None
        and task.run_after <= task.created_at
    )


def plain_task(task: Task) -> PlainTask:
    """What of a new task is its own."""
    check_depth(task.args)
    return task.id, as_text(detail_of(task)), packed_event(creation_event(task))


def plain_request(tasks: Sequence[Task], own: Sequence[PlainTask]) -> dict[str, Any]:
    """The request for lua/add_plain.lua. Tasks that differ in nothing but what is their own share one packed state."""
    kinds: dict[Kind, int] = {}
    numbers: dict[tuple[object, ...], int] = {}
    states: list[Raw] = []
    rows: list[object] = []
    for task, row in zip(tasks, own, strict=True):
        kind = (task.queue, task.name, task.priority)
        times = (task.created_at, task.updated_at, task.run_after)
        number = numbers.setdefault((kind, times, task.concurrency_key, task.args_digest), len(numbers) + 1)
        if 2 * number > len(states):
            states += (_fresh(task), as_text(_rest(task)))
        rows += (*row, kinds.setdefault(kind, len(kinds) + 1), number)
    return {"tasks": rows, "kinds": list(kinds), "states": states, "due": max(task.run_after for task in tasks)}


def _rest(task: Task) -> bytes:
    """The state behind `seq`, of a task without parent or idempotency key and without its log."""
    times = (task.run_after, task.generation, task.created_at)
    fields = (task.queue, task.name, task.priority, *times, False, False, task.args_digest or False)
    return _pack(fields)[1:]  # a list of less than 16 has a head of one byte


def _begin(*fields: object) -> Raw:
    """The state as far as `awaited`; the places of its fields are in lua/lib/fields.lua."""
    return as_text(_ARRAY + _pack(fields)[_OWN_HEAD:])


def _fresh(task: Task) -> Raw:
    key, no = task.concurrency_key or False, False
    return _begin("pending", "ready", "stream", 1, 0, no, no, no, no, no, 0, no, no, key, no, no, task.updated_at, no)


def is_plain_end(change: Change) -> bool:
    """Whether lua/commit.lua can end a run by comparing its state with what is expected."""
    before = change.before
    return (
        change.verb is Verb.SUCCEED
        and change.fields == _SUCCESS
        and before.status is Status.RUNNING
        and before.attempt == 1
        and before.concurrency_key is None
        and change.guard.run_id is not None
        and change.guard.version is None
        and change.guard.lease_until is None
        and len(change.events) == 1
        and not result_expiry(change.after)
    )


def plain_end(change: Change) -> tuple[object, ...]:
    """One of the ends for lua/commit.lua."""
    before, after = change.before, change.after
    if after.result is not None:
        check_depth(after.result)
    run_id, worker, lease, started = before.run_id, before.worker_id, before.lease_until, before.started_at
    deadline, ended, no = before.deadline or False, after.finished_at, False
    running = ("running", no, "stream", before.version, 1, run_id, worker, lease, started, no)
    completed = ("completed", no, no, after.version, 1, run_id, no, no, started, ended)
    return (
        before.id,
        run_id,
        ended,
        _begin(*running, 0, no, deadline, no, no, no, before.updated_at, no),
        _begin(*completed, 0, no, deadline, no, no, no, after.updated_at, no),
        as_text(outcome_of(after)),
        packed_event(change.events[0]),
    )
