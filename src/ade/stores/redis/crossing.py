"""Tasks that wait for tasks of another partition. Two records cannot be written at once, so news are carried over.

A task that waits afar is first stored as waiting, then made known to what it waits for; an outbox in each partition
holds what others must be told. Every step can be repeated, and the sweep finishes what a crash has left undone.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ade.core.records import AfterFailure, Task
from ade.stores.redis.codec import as_text, task_of
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.records import pairs, raw_records
from ade.stores.redis.timing import Timing
from ade.stores.redis.tokens import new_token

_PORTION = 200
_SETTLED_AFTER_MS = 5_000  # whoever stored a task has had time to make it known


class Crossing:
    def __init__(self, link: Link, places: Partitions, timing: Timing) -> None:
        self._link = link
        self._places = places
        self._timing = timing

    async def remote_needs(self, task: Task) -> list[tuple[str, int]]:
        """What a task waits for in other partitions, with the partition."""
        if self._link.partitions == 1 or not task.depends_on:
            return []
        here = self._places.of_queue(task.queue)
        known = await self._places.of_all(task.depends_on)
        return [(on, known[on]) for on in dict.fromkeys(task.depends_on) if known.get(on, here) != here]

    async def make_known(self, task: Task, remote: Sequence[tuple[str, int]], *, again: bool = False) -> None:
        """Tell what a task waits for that it does, and the task how things stand."""
        here = self._places.of_queue(task.queue)
        tolerant = task.after_failure is AfterFailure.RUN
        messages: list[list[Any]] = []
        for partition in sorted({place for _, place in remote}):
            names = [on for on, place in remote if place == partition]
            waits = [[on, task.id, here, tolerant, again] for on in names]
            fates = await self._link.run("await", partition, {**self._timing(), "waits": waits})
            messages += [
                _message(fate.decode(), on, task.id, partition)
                for on, fate in zip(names, fates, strict=True)
                if fate != b"open"
            ]
        await self._learn(here, [*messages, _message("linked", "", task.id, here)])

    async def deliver(self, partition: int) -> None:
        """Carry over what a partition has to tell others."""
        key = f"{self._link.names[partition].prefix}queue:outbox"
        while True:
            [entries] = await self._link.ask(partition, ("XRANGE", key, "-", "+", "COUNT", _PORTION))
            by_target: dict[int, list[list[Any]]] = {}
            for entry_id, fields in entries:
                facts = dict(pairs(fields))
                message = [as_text(facts[b"message"]), partition, f"{partition}-{entry_id.decode()}"]
                by_target.setdefault(int(facts[b"to"]), []).append(message)
            for target, messages in by_target.items():
                await self._learn(target, messages)
            if entries:
                await self._link.ask(partition, ("XDEL", key, *(entry_id for entry_id, _ in entries)))
            if len(entries) < _PORTION:
                return

    async def sweep(self) -> None:
        """Finish what was left undone."""
        if self._link.partitions == 1:
            return
        for partition in self._places.all:
            await self.deliver(partition)
            await self._link_again(partition)

    async def _link_again(self, partition: int) -> None:
        prefix = self._link.names[partition].prefix
        [unlinked] = await self._link.ask(partition, ("HGETALL", f"{prefix}queue:unlinked"))
        now = self._timing().get("now") or self._link.clock.now()
        late = [task_id.decode() for task_id, since in pairs(unlinked) if now - float(since) > _SETTLED_AFTER_MS]
        for task in map(task_of, await raw_records(self._link, partition, late)):
            [needs] = await self._link.ask(partition, ("HGETALL", f"{prefix}task:needs:{task.id}"))
            remote = [(on.decode(), int(at)) for on, at in _afar(needs)]
            await self.make_known(task, remote, again=task.generation > 1)

    async def _learn(self, partition: int, messages: list[list[Any]]) -> None:
        await self._link.run("learn", partition, {**self._timing(), "messages": messages})


def _message(kind: str, on: str, task_id: str, partition: int) -> list[Any]:
    return [as_text(msgspec.msgpack.encode([kind, on, task_id])), partition, new_token()]


def _afar(needs: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Those of a task's needs that are in other partitions, with the number."""
    return [(on, word.partition(b"@")[2]) for on, word in pairs(needs) if b"@" in word]
