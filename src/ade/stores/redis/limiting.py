"""Limits of a name that has work in several partitions: counted over all of them, by one claimer at a time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ade.core.errors import StoreUnavailable
from ade.core.records import Task
from ade.stores.redis.duties import take_duty
from ade.stores.redis.link import Link
from ade.stores.redis.timing import Timing

_DUTY = "limits"
_HELD_MS = 5_000  # far longer than a claim takes; after a crash others go on then
_PATIENCE_S = 1.0
_PAUSE_S = 0.005


class Usage:
    """What each partition has of names with limits."""

    def __init__(self, link: Link, timing: Timing, partitions: Sequence[int], not_after: int) -> None:
        self._link = link
        self._timing = timing
        self._partitions = partitions
        self._running: dict[int, Counter[str]] = {}
        self._rates: dict[int, dict[str, int]] = {}
        self._busy: dict[int, Counter[str]] = {}
        self._not_after = not_after

    async def read(self) -> None:
        """Ask all; then let those with parked tasks know which keys have room."""
        for partition in self._partitions:
            await self._ask(partition, busy=False)
        for partition in self._partitions:
            await self._ask(partition, busy=self._elsewhere(self._busy.items(), partition))

    async def _ask(self, partition: int, busy: dict[str, int] | bool) -> None:
        request = {**self._timing(), "busy": busy}
        running, rates, keys = await self._link.run("usage", partition, request, patience_s=_PATIENCE_S)
        self._running[partition] = Counter(_counts(running))
        self._rates[partition] = _counts(rates)
        self._busy[partition] = Counter(_counts(keys))

    def elsewhere(self, partition: int) -> dict[str, Any]:
        """What a claim from one partition must know of the others."""
        rates: dict[str, int] = {}
        for known in self._rates.values():
            rates.update({name: max(rates.get(name, 0), full_at) for name, full_at in known.items()})
        return {
            "running": self._elsewhere(self._running.items(), partition),
            "rates": rates,
            "busy": self._elsewhere(self._busy.items(), partition),
            "not_after": self._not_after,
        }

    async def taken(self, partition: int, tasks: Iterable[Task]) -> None:
        """These were started there."""
        for task in tasks:
            self._running[partition][task.name] += 1
            if task.concurrency_key is not None:
                self._busy[partition][f"{task.name}/{task.concurrency_key}"] += 1
        [rates] = await self._link.ask(partition, ("HGETALL", f"{self._link.names[partition].prefix}rates"))
        self._rates[partition] = _counts(rates)

    @staticmethod
    def _elsewhere(counts: Iterable[tuple[int, Counter[str]]], partition: int) -> dict[str, int]:
        total: Counter[str] = Counter()
        for place, count in counts:
            if place != partition:
                total += count
        return dict(total)


def _counts(flat: Sequence[Any]) -> dict[str, int]:
    return {name.decode(): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}


@asynccontextmanager
async def only_claimer(link: Link, timing: Timing, holder: str) -> AsyncIterator[int | None]:
    """Be the only one who claims names with limits, until the moment answered.

    None when others are for too long, or nobody can tell who is.
    """
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    while True:
        not_after = (timing().get("steady") or link.clock.steady()) + _HELD_MS
        held = await _take(link, timing, holder, _HELD_MS)
        if held or asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(_PAUSE_S)
    try:
        yield not_after if held else None
    finally:
        if held:
            await _take(link, timing, holder, -1)


async def _take(link: Link, timing: Timing, holder: str, ttl_ms: int) -> bool:
    """Take or give back the duty; who cannot be told so does not have it, and what is not given back ends by itself."""
    try:
        return await take_duty(link, timing, _DUTY, holder, ttl_ms, patience_s=_PATIENCE_S)
    except StoreUnavailable:
        return False
