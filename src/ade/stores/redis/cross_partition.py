"""Dependencies between tasks of different partitions, which cannot be written atomically.

A task with a remote dependency is first stored as waiting, then registered with that dependency. An outbox in each
partition holds messages for other partitions. Every step can be repeated, and the sweep completes it after a crash.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from ade.errors import StoreUnavailable
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.errors import Command
from ade.stores.redis.client.topology import SHORT_PATIENCE_S
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import as_text, pairs, raw_records, task_of
from ade.stores.redis.partitions import Partitions
from ade.tasks.model import AfterFailure, Task

_PORTION = 200
_SETTLED_AFTER_MS = 5_000  # by then the process that stored a task has registered it, or crashed

_NEWS = {b"met": "met", b"broken": "broken", b"open": "hope"}  # status of a dependency -> message to the waiting task
_Run = Callable[[str, int, dict[str, Any]], Awaitable[Any]]


class CrossPartitionDependencies:
    """Registers remote dependencies and delivers messages between partitions."""

    def __init__(self, link: RedisClient, places: Partitions) -> None:
        self._link = link
        self._places = places

    async def remote_needs(self, task: Task) -> list[tuple[str, int]]:
        """The dependencies of a task in other partitions, with the partition."""
        if self._link.partitions == 1 or not task.depends_on:
            return []
        here = self._places.of_queue(task.queue)
        known = await self._places.of_all(task.depends_on)
        return [(on, known[on]) for on in dict.fromkeys(task.depends_on) if known.get(on, here) != here]

    async def make_known(self, task: Task, remote: Sequence[tuple[str, int]], *, again: bool = False) -> None:
        """Register a task with its remote dependencies, and send their status to the task."""
        await self._make_known(task, remote, again, self._link.run)

    async def _make_known(self, task: Task, remote: Sequence[tuple[str, int]], again: bool, run: _Run) -> None:
        """Register until the status is stable: it can change before the task receives it."""
        here = self._places.of_queue(task.queue)
        reported = dict.fromkeys((on for on, _ in remote), b"open")
        asked = list(remote)
        while asked:
            fates = await self._fates(task, asked, again, run)
            asked = [(on, place) for on, place in asked if fates[on] != reported[on]]
            reported |= fates
            if asked:
                messages = [_message(_NEWS[fates[on]], on, task.id, place) for on, place in asked]
                await run("receive_messages", here, {"messages": messages})
            asked = [(on, place) for on, place in asked if fates[on] != b"met"]  # this status is final
        await run("receive_messages", here, {"messages": [_message("linked", "", task.id, here)]})

    async def _fates(self, task: Task, asked: Sequence[tuple[str, int]], again: bool, run: _Run) -> dict[str, bytes]:
        here = self._places.of_queue(task.queue)
        tolerant = task.after_failure is AfterFailure.RUN
        fates: dict[str, bytes] = {}
        for partition in sorted({place for _, place in asked}):
            names = [on for on, place in asked if place == partition]
            waits = [[on, task.id, here, tolerant, again] for on in names]
            answers = await run("add_remote_waiter", partition, {"waits": waits})
            fates.update(zip(names, answers, strict=True))
        return fates

    async def carry_on(self, partition: int, revived: Iterable[tuple[Task, Sequence[tuple[str, int]]]]) -> None:
        """After a commit, notify other partitions. The sweep delivers messages that cannot be delivered now."""
        with suppress(StoreUnavailable):
            await self.deliver(partition)
        for task, remote in revived:
            with suppress(StoreUnavailable):
                await self._make_known(task, remote, True, self._run)

    async def deliver(self, partition: int) -> None:
        """Deliver the outbox of a partition. Raises at the end if some partitions are unreachable."""
        key = f"{self._link.names[partition].prefix}queue:outbox"
        start, away = "-", dict[int, StoreUnavailable]()
        while True:
            [entries] = await self._ask(partition, ("XRANGE", key, start, "+", "COUNT", _PORTION))
            by_target: dict[int, list[tuple[bytes, list[Any]]]] = {}
            for entry_id, fields in entries:
                facts = dict(pairs(fields))
                message = [as_text(facts[b"message"]), partition, f"{partition}-{entry_id.decode()}"]
                by_target.setdefault(int(facts[b"to"]), []).append((entry_id, message))
            for target, news in by_target.items():
                if target in away:  # a partition must receive its messages in order
                    continue
                try:
                    await self._run("receive_messages", target, {"messages": [each for _, each in news]})
                    await self._ask(partition, ("XDEL", key, *(entry_id for entry_id, _ in news)))
                except StoreUnavailable as error:
                    away[target] = error
            if len(entries) < _PORTION:
                break
            start = f"({entries[-1][0].decode()}"
        if away:
            raise next(iter(away.values()))

    async def sweep(self) -> None:
        """Deliver messages and complete registrations of all partitions; raises if one is unreachable."""
        if self._link.partitions == 1:
            return
        done = await asyncio.gather(*map(self._sweep, self._places.all), return_exceptions=True)
        for error in done:
            if error is not None:
                raise error

    async def _sweep(self, partition: int) -> None:
        try:
            await self.deliver(partition)
        finally:
            await self._link_again(partition)

    async def _link_again(self, partition: int) -> None:
        prefix = self._link.names[partition].prefix
        [unlinked] = await self._ask(partition, ("HGETALL", f"{prefix}queue:unlinked"))
        now = self._link.clock.now()
        late = [task_id.decode() for task_id, since in pairs(unlinked) if now - float(since) > _SETTLED_AFTER_MS]
        for task in map(task_of, await raw_records(self._link, partition, late)):
            [needs] = await self._ask(partition, ("HGETALL", f"{prefix}task:needs:{task.id}"))
            remote = [(on.decode(), int(at)) for on, at in _afar(needs)]
            with suppress(StoreUnavailable):  # the next sweep tries again
                await self._make_known(task, remote, task.generation > 1, self._run)

    async def _run(self, name: str, partition: int, request: dict[str, Any]) -> Any:
        with self._within_reach(partition):
            return await self._link.run(name, partition, request, patience_s=SHORT_PATIENCE_S)

    async def _ask(self, partition: int, command: Command) -> list[Any]:
        with self._within_reach(partition):
            return await self._link.ask(partition, command, patience_s=SHORT_PATIENCE_S)

    @contextmanager
    def _within_reach(self, partition: int) -> Iterator[None]:
        """Fail immediately for a partition that was unreachable a moment ago."""
        self._link.reach.check(partition)
        try:
            yield
        except StoreUnavailable as error:
            self._link.reach.note(partition, error)
            raise


def _message(kind: str, on: str, task_id: str, partition: int) -> list[Any]:
    return [as_text(msgspec.msgpack.encode([kind, on, task_id])), partition, new_token()]


def _afar(needs: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The dependencies in other partitions, with the partition number."""
    return [(on, word.partition(b"@")[2]) for on, word in pairs(needs) if b"@" in word]
