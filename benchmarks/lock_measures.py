"""The measurements of locks, the same for every contestant. Each returns named figures."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from benchmarks.contract import AsyncLocks, BlockingLocks, LockContestant, NotOffered, Options
from benchmarks.lock_process import LockProcesses
from benchmarks.measures import Figures, server_cpu

LockMeasure = Callable[[str, LockContestant, Options], Figures]
WARM_UP_TURNS = 20
AGENT = "agent"


def locks_uncontended(name: str, contestant: LockContestant, options: Options) -> Figures:
    """How often one agent can take and release a lock that nobody else wants."""
    locks = contestant.locks(options.place)
    with server_cpu(options) as server_used:
        if isinstance(locks, AbstractAsyncContextManager):
            pairs, seconds = asyncio.run(_awaited_pairs(locks, options.seconds))
        else:
            pairs, seconds = _blocking_pairs(locks, options.seconds)
        figures = {"pairs_per_second": pairs / seconds, "pairs": pairs}
        return {**figures, **_server_share(options, server_used(), pairs + WARM_UP_TURNS)}


def locks_contended(name: str, contestant: LockContestant, options: Options) -> Figures:
    """How fast and how fairly a lock goes round among many that want nothing else."""
    if not isinstance(contestant.locks(options.place), AbstractAsyncContextManager):
        raise NotOffered("the agents are coroutines, and its calls block")
    with LockProcesses(name, options) as processes, server_cpu(options) as server_used:
        fight = processes.fight()
        server_seconds = server_used()
    if not fight.is_exclusive():
        raise RuntimeError("two agents had the lock at the same time")
    figures = fight.figures()
    return {**figures, **_server_share(options, server_seconds, int(figures["turns"]))}


LOCK_MEASURES: Mapping[str, LockMeasure] = {
    measure.__name__: measure for measure in (locks_uncontended, locks_contended)
}


def _server_share(options: Options, seconds: float, turns: int) -> Figures:
    return {"server_us_per_turn": 1e6 * seconds / max(1, turns)} if options.server else {}


async def _awaited_pairs(locks: AbstractAsyncContextManager[AsyncLocks], seconds: float) -> tuple[int, float]:
    async with locks as opened:
        for _ in range(WARM_UP_TURNS):
            async with opened.lock(AGENT):
                pass
        pairs, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            async with opened.lock(AGENT):
                pass
            pairs += 1
        return pairs, passed


def _blocking_pairs(locks: AbstractContextManager[BlockingLocks], seconds: float) -> tuple[int, float]:
    with locks as opened:
        for _ in range(WARM_UP_TURNS):
            with opened.lock(AGENT):
                pass
        pairs, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            with opened.lock(AGENT):
                pass
            pairs += 1
        return pairs, passed
