"""Inserts of new tasks: each call is stored completely or not at all, except across partitions."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, structs

from ade.errors import NotConfirmed
from ade.stores.redis.client.batcher import Batcher, UnbatchedCalls
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.sync_client import NotAnswered, SyncClient
from ade.stores.redis.codec import LENGTH, as_text, check_depth, detail_of, new_task, packed_event, task_of
from ade.stores.redis.cross_partition import CrossPartitionDependencies
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.wakeups import RedisWakeups
from ade.tasks.admission import (
    birth_events,
    check_no_cycle_of_known,
    creation_event,
    key_conflict,
    queue_full,
    unknown_dependency,
    with_known_dependencies,
)
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task, labels_of

# Fast path for plain new tasks: their state is packed here, and lua/add_fast_path.lua stores it unchanged.


_ARRAY = b"\xdc" + LENGTH.to_bytes(2, "big")  # the MessagePack header of a state
_OWN_HEAD = 3  # header bytes of a packed list of 16 to 65535 values
_pack = msgspec.msgpack.Encoder().encode
Kind = tuple[str, str, int]  # queue, name, priority
PlainTask = tuple[str, Raw, Raw]  # id, detail, event


def is_plain(task: Task) -> bool:
    """Return whether lua/add_fast_path.lua can store a new task."""
    return (
        task.status is Status.PENDING
        and task.version == 1
        and task.attempt == 0
        and task.generation == 1
        and task.idempotency_key is None
        and not task.depends_on
        and task.deadline is None
        and not task.needs
        and task.team is None
        and task.ticket_ref is None
        and task.parent_id is None
        and task.review is None
        and task.run_after <= task.created_at
    )


def plain_task(task: Task) -> PlainTask:
    """The parts of a new task that other tasks do not share."""
    check_depth(task.args)
    return task.id, as_text(detail_of(task)), packed_event(creation_event(task))


def plain_request(tasks: Sequence[Task], own: Sequence[PlainTask]) -> dict[str, Any]:
    """Build the request for lua/add_fast_path.lua. Tasks that differ only in id, detail, and event share a state."""
    kinds: dict[Kind, int] = {}
    numbers: dict[tuple[object, ...], int] = {}
    states: list[Raw] = []
    rows: list[object] = []
    labeled: dict[str, list[int]] = {}
    for place, (task, row) in enumerate(zip(tasks, own, strict=True), start=1):
        if task.author_id is not None or task.tags or task.resources or task.locks:
            for label in labels_of(task):
                labeled.setdefault(label, []).append(place)
        kind = (task.queue, task.name, task.priority)
        times = (task.created_at, task.updated_at, task.run_after)
        number = numbers.setdefault((kind, times, task.concurrency_key, task.args_digest), len(numbers) + 1)
        if 2 * number > len(states):
            states += (_fresh(task), as_text(_rest(task)))
        rows += (*row, kinds.setdefault(kind, len(kinds) + 1), number)
    request = {"tasks": rows, "kinds": list(kinds), "states": states, "due": max(task.run_after for task in tasks)}
    return {**request, "labels": labeled} if labeled else request


def _rest(task: Task) -> bytes:
    """The state after `seq`, of a task without parent or idempotency key, without the log."""
    times = (task.run_after, task.generation, task.created_at)
    fields = (task.queue, task.name, task.priority, *times, False, False, task.args_digest or False)
    return _pack(fields)[1:]  # a list of fewer than 16 values has a header of one byte


def _begin(*fields: object) -> Raw:
    """The state up to `awaited`; the positions of its fields are in lua/lib/fields.lua."""
    return as_text(_ARRAY + _pack(fields)[_OWN_HEAD:])


def _fresh(task: Task) -> Raw:
    key, no = task.concurrency_key or False, False
    return _begin("pending", "ready", "stream", 1, 0, no, no, no, no, no, 0, no, no, key, no, no, task.updated_at, no)


Remote = Mapping[str, Sequence[tuple[str, int]]]  # task ID -> its dependencies in other partitions, with the partition
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_AHEAD_MS = 100  # plus 1 ms per task, so that no partition has passed these ticks when it is written
_MOST = 500  # tasks in one script call, unless a single caller adds more
_MOST_PLAIN = 5000  # tasks in one call of lua/add_fast_path.lua
_LARGE = 1 << 14  # bytes that count as one more task, so that no call takes long on a slow network


@dataclass(slots=True)
class _InsertCall:
    """The tasks that one caller adds to one partition; `plain` is set if lua/add_fast_path.lua can store them."""

    tasks: Sequence[Task]
    plain: list[PlainTask] | None
    usual: list[Any] | None

    def packed(self) -> list[Any]:
        """The tasks packed for lua/add.lua."""
        return _packed(self.tasks) if self.usual is None else self.usual


def _call(tasks: Sequence[Task], remote: Remote = _NOTHING, ages: Mapping[str, int] = _NOTHING) -> _InsertCall:
    if not ages and all(map(is_plain, tasks)):  # with ages, the order across partitions is already fixed
        return _InsertCall(tasks, [plain_task(task) for task in tasks], None)
    return _InsertCall(tasks, None, _packed(tasks, remote, ages))


def _packed(tasks: Sequence[Task], remote: Remote = _NOTHING, ages: Mapping[str, int] = _NOTHING) -> list[Any]:
    return [new_task(task, birth_events(task), remote.get(task.id, ()), ages.get(task.id, False)) for task in tasks]


def _weight(call: _InsertCall) -> int:
    return sum(1 + len(task.args) // _LARGE for task in call.tasks)


class _ExistingTask(Exception):  # internal: caught in `_add_to`, which retries with the existing ID
    """Tasks of a call wait for one that exists already under another id."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self.names = names


class RedisInserts:
    """Add tasks to the partitions of their queues."""

    def __init__(
        self,
        link: RedisClient,
        places: Partitions,
        crossing: CrossPartitionDependencies,
        wakeups: RedisWakeups | None,
        usual_depth: int | None,
        direct: SyncClient | None = None,
    ) -> None:
        """With `direct`, serve threads without an event loop: every call blocks until the server responds."""
        self._link = link
        self._run = link.run if direct is None else direct.run
        self._places = places
        self._crossing = crossing
        self._wakeups = wakeups
        self._usual_depth = usual_depth
        self._batchers = [self._batcher(partition, batched=direct is None) for partition in places.all]

    def _batcher(
        self, partition: int, *, batched: bool
    ) -> Batcher[_InsertCall, list[Task]] | UnbatchedCalls[_InsertCall, list[Task]]:
        send = partial(self._send, partition)
        if not batched:
            return UnbatchedCalls(send)
        return Batcher(send, weigh=_weight, most=_MOST, lone=True)

    def add(self, tasks: Sequence[Task]) -> Coroutine[Any, Any, list[Task]]:
        return self._add_to(0, tasks) if tasks and self._link.partitions == 1 else self._add_anywhere(tasks)

    async def _add_anywhere(self, tasks: Sequence[Task]) -> list[Task]:
        if not tasks:
            return []
        partitions = {self._places.of_queue(task.queue) for task in tasks}
        if len(partitions) == 1 and not any(task.depends_on for task in tasks):
            stored = await self._add_to(partitions.pop(), tasks)
        else:
            stored = await self._add_across(tasks)
        self._places.remember(stored)
        return stored

    async def _add_to(
        self,
        partition: int,
        tasks: Sequence[Task],
        remote: Remote = _NOTHING,
        ages: Mapping[str, int] = _NOTHING,
    ) -> list[Task]:
        """Add to one partition; a dependency that already exists under another ID is replaced with that ID."""
        while True:
            try:
                return await self._batchers[partition].ask(_call(tasks, remote, ages))
            except _ExistingTask as known:
                tasks = [with_known_dependencies(task, known.names) for task in tasks]
                check_no_cycle_of_known([task for task in tasks if task.id not in known.names])

    async def _add_across(self, tasks: Sequence[Task]) -> list[Task]:
        """Add to several partitions, which cannot be written atomically: try each first, then write each.

        A concurrent write in between can make one part fail after another part was stored. The call then raises, and
        a repeated call finds the tasks it has already stored.
        """
        by_partition: dict[int, list[Task]] = {}
        for task in tasks:
            by_partition.setdefault(self._places.of_queue(task.queue), []).append(task)
        remote = await self._remote_needs(tasks)
        earlier: dict[str, str] = {}
        for partition, portion in by_partition.items():
            alone = _call([_standing_alone(task) for task in portion])
            [answer] = await self._send(partition, [alone], only_try=True)
            if isinstance(answer, Exception):
                raise answer
            pairs = zip(portion, answer, strict=True)
            earlier.update({task.id: known.id for task, known in pairs if task.id != known.id})
        stored: dict[str, Task] = {}
        fresh = {task.id: with_known_dependencies(task, earlier) for task in tasks if task.id not in earlier}
        if earlier:
            check_no_cycle_of_known(list(fresh.values()))
            remote = await self._remote_needs(list(fresh.values()))
        ages = self._ages(tasks)
        unconfirmed: NotConfirmed | None = None
        for partition, portion in by_partition.items():
            group = [fresh.get(task.id, task) for task in portion]
            try:
                answer = await self._add_to(partition, group, remote, ages)
            except NotConfirmed as error:  # the tasks are stored; store the rest before raising
                unconfirmed = error
                continue
            stored.update({task.id: known for task, known in zip(portion, answer, strict=True)})
        for task_id, needs in remote.items():
            if needs:
                await self._crossing.make_known(fresh[task_id], needs)
        if unconfirmed is not None:
            raise unconfirmed
        return [stored[task.id] for task in tasks]

    def _ages(self, tasks: Sequence[Task]) -> dict[str, int]:
        """Ticks that keep the order of the tasks in a call across partitions."""
        step = self._link.partitions
        first = (self._link.server_clock.now() + _AHEAD_MS + len(tasks)) * 1000 // step * step
        return {task.id: first + number * step + self._places.of_queue(task.queue) for number, task in enumerate(tasks)}

    async def _remote_needs(self, tasks: Sequence[Task]) -> dict[str, list[tuple[str, int]]]:
        within = {task.id: self._places.of_queue(task.queue) for task in tasks}
        outside = [on for task in tasks for on in task.depends_on if on not in within]
        known = within | await self._places.of_existing(list(dict.fromkeys(outside)))
        remote: dict[str, list[tuple[str, int]]] = {}
        for task in tasks:
            for on in dict.fromkeys(task.depends_on):
                if on not in known:
                    raise unknown_dependency(on)
                if known[on] != within[task.id]:
                    remote.setdefault(task.id, []).append((on, known[on]))
        return remote

    async def _add_plain(self, partition: int, calls: list[_InsertCall]) -> bool:
        """Store plain tasks by the fast path. Return False if lua/add.lua must store them."""
        if self._usual_depth or self._link.is_strong:
            return False
        own = [row for call in calls for row in call.plain or ()]
        tasks = calls[0].tasks if len(calls) == 1 else [task for call in calls for task in call.tasks]
        if len(own) < len(tasks) or len(tasks) > _MOST_PLAIN:
            return False
        if len(tasks) > 1 and len({task.id for task in tasks}) < len(tasks):
            return False
        request = plain_request(tasks, own)
        stored = bool(await self._run("add_fast_path", partition, request))
        if stored and self._wakeups is not None:
            self._wakeups.added()
        return stored

    async def _send(
        self, partition: int, calls: list[_InsertCall], *, only_try: bool = False
    ) -> list[list[Task] | Exception]:
        if not only_try and await self._add_plain(partition, calls):
            return [list(call.tasks) for call in calls]
        request = {
            "groups": [call.packed() for call in calls],
            "usual_depth": self._usual_depth or False,
            "try": only_try,
        }
        unconfirmed: NotConfirmed | None = None
        try:
            answers: Any = await self._run("add", partition, request, confirm=self._link.is_strong and not only_try)
        except NotConfirmed as error:
            unconfirmed, answers = error, error.answer
        if self._wakeups is not None and not only_try:
            self._wakeups.added()
        results = [await self._answer(partition, call.tasks, each) for call, each in zip(calls, answers, strict=True)]
        return [unconfirmed if unconfirmed and isinstance(each, list) else each for each in results]

    async def _answer(self, partition: int, tasks: Sequence[Task], answer: list[Any]) -> list[Task] | Exception:
        if answer[0] != b"stored":
            return await self._refusal(partition, tasks, answer)
        by_id = {task.id: task for task in tasks}
        return [task_of(each) if isinstance(each, list) else by_id[each.decode()] for each in answer[1]]

    async def _refusal(self, partition: int, tasks: Sequence[Task], answer: list[Any]) -> Exception:
        match answer[1:]:
            case [b"conflict", task_id, earlier]:
                task = next(task for task in tasks if task.id == task_id.decode())
                return key_conflict(task, earlier.decode())
            case [b"unknown_dependency", task_id]:
                return unknown_dependency(task_id.decode())
            case [b"known", task_id, earlier]:
                return _ExistingTask({task_id.decode(): earlier.decode()})
            case [b"full", queue, count, room, limit]:
                asked = {"queue": queue.decode()}
                finished = await self._run("finished_since", partition, asked)
                return queue_full(queue.decode(), count=count, depth=limit - room, limit=limit, finished=finished)
        raise AssertionError(f"the script add answered {answer!r}")


def _standing_alone(task: Task) -> Task:
    return structs.replace(task, depends_on=())


# Inserts from threads without an event loop.


Result = TypeVar("Result")
_MOST_BLOCKING, _MOST_BYTES = 500, 1 << 20  # per call; larger calls take so long that the path does not matter


class RedisBlockingInserts:
    """Inserts for threads without an event loop; `adding` must never wait on an event loop."""

    def __init__(self, link: RedisClient, adding: RedisInserts) -> None:
        self._link = link
        self._adding = adding

    def add(self, tasks: Sequence[Task]) -> list[Task] | None:
        """Add tasks. Return None if the caller must use the event loop instead."""
        self._link.check_process()
        if len(tasks) > 1 and (len(tasks) > _MOST_BLOCKING or sum(len(task.args) for task in tasks) > _MOST_BYTES):
            return None
        try:
            return run_to_its_end(self._adding.add(tasks))
        except NotAnswered:
            return None


def run_to_its_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits, and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise AssertionError("a blocking call waited on an event loop")
