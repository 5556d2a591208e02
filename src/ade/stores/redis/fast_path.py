"""The fast path of new plain tasks: their state is packed here, and lua/add_fast_path.lua stores it as it is."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from ade.stores.redis.codec import LENGTH, as_text, check_depth, detail_of, packed_event
from ade.tasks.decisions import creation_event
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

_ARRAY = b"\xdc" + LENGTH.to_bytes(2, "big")  # the head of a state
_OWN_HEAD = 3  # bytes of the head of a packed list of 16 to 65535 values
_pack = msgspec.msgpack.Encoder().encode
Kind = tuple[str, str, int]  # queue, name, priority
PlainTask = tuple[str, Raw, Raw]  # id, detail, event


def is_plain(task: Task) -> bool:
    """Whether lua/add_fast_path.lua can store a new task."""
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
    """The parts of a new task that other tasks do not share."""
    check_depth(task.args)
    return task.id, as_text(detail_of(task)), packed_event(creation_event(task))


def plain_request(tasks: Sequence[Task], own: Sequence[PlainTask]) -> dict[str, Any]:
    """The request for lua/add_fast_path.lua. Tasks that differ only in id, detail, and event share a state."""
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
    """The state after `seq`, of a task without parent or idempotency key, without the log."""
    times = (task.run_after, task.generation, task.created_at)
    fields = (task.queue, task.name, task.priority, *times, False, False, task.args_digest or False)
    return _pack(fields)[1:]  # a list of less than 16 has a head of one byte


def _begin(*fields: object) -> Raw:
    """The state up to `awaited`; the positions of its fields are in lua/lib/fields.lua."""
    return as_text(_ARRAY + _pack(fields)[_OWN_HEAD:])


def _fresh(task: Task) -> Raw:
    key, no = task.concurrency_key or False, False
    return _begin("pending", "ready", "stream", 1, 0, no, no, no, no, no, 0, no, no, key, no, no, task.updated_at, no)
