"""Claims: select the next tasks for a worker, within the limits of their names."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count, groupby
from types import MappingProxyType
from typing import Any

from msgspec import structs

from ade.errors import StoreUnavailable
from ade.logs import Log
from ade.stores.ports import ClaimRequest
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.topology import SHORT_PATIENCE_S
from ade.stores.redis.codec import UNREADABLE, Record, read_aged, remains_of
from ade.stores.redis.commits import RedisCommits
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.sweeps import claim_job
from ade.stores.redis.upgrade import SchemaWatch
from ade.tasks.decisions import fail_run, release
from ade.tasks.model import Task
from ade.tasks.outcomes import NOT_STARTED, Failed, Released

# Limits of a task name with tasks in several partitions: one claimer at a time counts over all of them.


_DUTY = "limits"
_HELD_MS = 5_000  # far longer than a claim takes; after a crash other claimers continue then
_PATIENCE_S = 1.0
_PAUSE_S = 0.005


class LimitUsage:
    """Running tasks, rate limits, and busy concurrency keys of task names with limits, per partition."""

    def __init__(self, link: RedisClient, partitions: Sequence[int], not_after: int) -> None:
        self._link = link
        self._partitions = partitions
        self._running: dict[int, Counter[str]] = {}
        self._rates: dict[int, dict[str, int]] = {}
        self._busy: dict[int, Counter[str]] = {}
        self._not_after = not_after

    async def read(self) -> None:
        """Read the usage of all partitions, then let each unpark tasks whose concurrency key has capacity."""
        for partition in self._partitions:
            await self._ask(partition, busy=False)
        for partition in self._partitions:
            await self._ask(partition, busy=self._elsewhere(self._busy.items(), partition))

    async def _ask(self, partition: int, busy: dict[str, int] | bool) -> None:
        request = {"busy": busy}
        running, rates, keys = await self._link.run("limit_usage", partition, request, patience_s=_PATIENCE_S)
        self._running[partition] = Counter(_counts(running))
        self._rates[partition] = _counts(rates)
        self._busy[partition] = Counter(_counts(keys))

    def elsewhere(self, partition: int) -> dict[str, Any]:
        """The usage of other partitions that a claim from this one must count."""
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
        """Count tasks that were just claimed from a partition."""
        for task in tasks:
            self._running[partition][task.name] += 1
            if task.concurrency_key is not None:
                self._busy[partition][f"{task.name}/{task.concurrency_key}"] += 1
        [rates] = await self._link.ask(partition, ("HGETALL", f"{self._link.names[partition].prefix}rates"))
        self._rates[partition] = _counts(rates)

    @staticmethod
    def _elsewhere(counts: Iterable[tuple[int, Counter[str]]], partition: int) -> dict[str, int]:
        total: Counter[str] = Counter()
        for place, running in counts:
            if place != partition:
                total += running
        return dict(total)


def _counts(flat: Sequence[Any]) -> dict[str, int]:
    return {name.decode(): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}


@asynccontextmanager
async def only_claimer(link: RedisClient, holder: str) -> AsyncIterator[int | None]:
    """Become the only claimer of task names with limits, and yield the (steady) time until which that holds.

    Yields None if another claimer holds the job for too long, or if the store is unavailable.
    """
    deadline = asyncio.get_running_loop().time() + _PATIENCE_S
    while True:
        not_after = link.clock.steady() + _HELD_MS
        held = await _take(link, holder, _HELD_MS)
        if held or asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(_PAUSE_S)
    try:
        yield not_after if held else None
    finally:
        if held:
            await _take(link, holder, -1)


async def _take(link: RedisClient, holder: str, ttl_ms: int) -> bool:
    """Acquire or release the job. Without a response it is not held; a job that is not released expires."""
    try:
        return await claim_job(link, _DUTY, holder, ttl_ms, patience_s=_PATIENCE_S)
    except StoreUnavailable:
        return False


_RETURN_PAUSE_S = 0.2
_NO_QUEUE = ("!none",)  # no queue has such a name
_UNKNOWN_S = 2.0  # how long names with limits are skipped after a partition did not report its usage
_log = Log("ade.store")
Claimed = tuple[int, Task]  # seq and task
Head = tuple[int, int, int, str]  # priority, seq, partition, and the name if it has limits, else empty


class RedisClaims:
    """Claim tasks from one partition or across several."""

    def __init__(self, link: RedisClient, places: Partitions, committing: RedisCommits) -> None:
        self._link = link
        self._places = places
        self._committing = committing
        self._reach = link.reach
        self._returning: set[asyncio.Task[None]] = set()  # claims whose responses were lost
        self._schema = SchemaWatch(link)
        self._limits_unknown_until = 0.0

    async def claim(self, request: ClaimRequest) -> list[Task]:
        if not request.run_ids or not request.names:
            return []
        self._schema.check()
        partitions = sorted({self._places.of_queue(queue) for queue in request.queues}) or list(self._places.all)
        if self._link.partitions == 1:
            tasks = [task for _, task in await self._claim_from(partitions[0], request, request.run_ids[0])]
        else:
            tasks = await self._claim_among(partitions, request)
        self._places.remember(tasks)
        return tasks

    async def _claim_among(self, partitions: Sequence[int], request: ClaimRequest) -> list[Task]:
        """Peek at the heads of all partitions, then claim the first tasks over all of them."""
        first = await self._peek(partitions, request, len(request.run_ids))
        if before := first.given_before:  # a retry of a request whose response was lost
            claimed = await self._claim_again(before, request)
        elif first.has_limits:
            claimed = await self._claim_limited(partitions, request, first)
        else:
            claimed = await self._claim_shares(partitions, request, first)
        claimed.sort(key=lambda each: (each[1].priority, each[0]))
        return [task for _, task in claimed]

    async def _claim_again(self, partitions: Sequence[int], request: ClaimRequest) -> list[Claimed]:
        asked = (self._claim_from(each, request, request.run_ids[0]) for each in partitions)
        return [each for got in await asyncio.gather(*asked) for each in got]

    async def _claim_shares(
        self, partitions: Sequence[int], request: ClaimRequest, heads: "PartitionHeads | None" = None
    ) -> list[Claimed]:
        """Claim its share from each partition concurrently; skip names with limits."""
        claimed: list[Claimed] = []
        open_to, left = list(partitions), list(request.run_ids)
        for number in count():
            request_id = f"{request.run_ids[0]}.{number}"
            heads = heads or await self._peek(open_to, request, len(left))
            shares = Counter(partition for _, _, partition, name in heads.ranked[: len(left)] if not name)
            heads = None
            if not shares:
                return claimed
            parts: list[tuple[int, ClaimRequest]] = []
            for partition, share in shares.items():
                parts.append((partition, structs.replace(request, run_ids=left[:share])))
                left = left[share:]
            extra = {"limited": "skip", "of": request.run_ids[0]}
            asked = (self._claim_from(*part, request_id, extra, SHORT_PATIENCE_S) for part in parts)
            given = await asyncio.gather(*asked, return_exceptions=True)
            if all(isinstance(got, StoreUnavailable) for got in given) and not claimed:
                raise given[0]  # type: ignore[misc]  # the caller repeats the request
            for (partition, part), got in zip(parts, given, strict=True):
                if isinstance(got, StoreUnavailable):
                    self._reach.note(partition, got)
                    self._return_later(partition, part, request_id, extra)
                    open_to.remove(partition)
                    continue
                if isinstance(got, BaseException):
                    raise got
                claimed += got
                left += _unused(part.run_ids, got)
                if len(got) < len(part.run_ids):
                    open_to.remove(partition)  # it has no more tasks for this worker
            if not left:
                return claimed
        raise AssertionError("counting never ends")

    async def _claim_limited(
        self, partitions: Sequence[int], request: ClaimRequest, first: "PartitionHeads"
    ) -> list[Claimed]:
        """Claim names with limits in order. One claimer at a time, because limits count over all partitions."""
        free = structs.replace(request, names=request.names - {name for *_, name in first.ranked if name})
        if time.monotonic() < self._limits_unknown_until or self._reach.is_any_away():
            return await self._claim_shares(partitions, free)
        async with only_claimer(self._link, request.run_ids[0]) as not_after:
            usage = None if not_after is None else await self._usage(not_after)
            if usage is not None:
                return await self._claim_in_order(partitions, request, usage)
        return await self._claim_shares(partitions, free)

    async def _usage(self, not_after: int) -> LimitUsage | None:
        """The usage of limits, or None if a partition is unreachable: its running tasks count but are unknown."""
        usage = LimitUsage(self._link, list(self._places.all), not_after)
        try:
            await usage.read()
        except StoreUnavailable as error:
            self._limits_unknown_until = time.monotonic() + _UNKNOWN_S
            _log.debug("store.limits_unknown", reason=error.detail)
            return None
        return usage

    async def _claim_in_order(
        self, partitions: Sequence[int], request: ClaimRequest, usage: LimitUsage
    ) -> list[Claimed]:
        claimed: list[Claimed] = []
        left, numbers = list(request.run_ids), count()
        before: list[Head] | None = None
        while left and request.names:
            request_id = f"{request.run_ids[0]}.{next(numbers)}"
            heads = await self._peek(partitions, request, len(left))
            taken: list[Claimed] = []
            for partition, chunk in groupby(heads.ranked[: len(left)], key=lambda head: head[2]):
                *_, last = ranks = list(chunk)
                part = structs.replace(request, run_ids=left[: len(ranks)])
                extra = {"limited": usage.elsewhere(partition), "bound": last[:2], "of": request.run_ids[0]}
                got = await self._claim_from(partition, part, f"{request_id}.{last[1]}", extra)
                await usage.taken(partition, (task for _, task in got))
                left = [*_unused(part.run_ids, got), *left[len(ranks) :]]
                taken += got
            claimed += taken
            if not taken and heads.ranked == before:  # neither started nor parked: their limits are reached
                held_back = {name for *_, name in heads.ranked[: len(left)] if name}  # later heads were not tried
                if not held_back:
                    break
                request = structs.replace(request, names=request.names - held_back)
            before = heads.ranked
        return claimed

    async def _peek(self, partitions: Sequence[int], request: ClaimRequest, limit: int) -> "PartitionHeads":
        """The first claimable tasks of each partition."""
        question = {
            "id": request.run_ids[0],
            "names": sorted(request.names),
            "queues": request.queues,
            "limit": limit,
        }
        if request.capabilities:
            question["capabilities"] = sorted(request.capabilities)

        async def ask(partition: int, patience_s: float | None) -> list[Any]:
            found: list[Any] = await self._link.run("peek_claim", partition, question, patience_s=patience_s)
            return found

        return PartitionHeads(await self._reach.each(partitions, ask))

    def _return_later(self, partition: int, request: ClaimRequest, request_id: str, extra: Mapping[str, Any]) -> None:
        """Return what a claim without a response may have claimed, as soon as its partition responds."""
        returning = asyncio.get_running_loop().create_task(self._return(partition, request, request_id, extra))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)

    async def _return(self, partition: int, request: ClaimRequest, request_id: str, extra: Mapping[str, Any]) -> None:
        while True:
            await asyncio.sleep(_RETURN_PAUSE_S)
            if self._reach.is_away(partition):
                continue
            try:
                repeated = structs.replace(request, queues=_NO_QUEUE)  # returns what it claimed before, and nothing new
                tasks = [task for _, task in await self._claim_from(partition, repeated, request_id, extra)]
                unstarted = Released(NOT_STARTED, has_begun=False)
                changes = [release(task, unstarted, now=self._link.clock.now()) for task in tasks]
                if changes:
                    await self._committing.commit_each(changes)
                    _log.info("claim.returned", partition=partition, task_ids=[task.id for task in tasks])
                return
            except StoreUnavailable as error:
                self._reach.note(partition, error)

    async def _claim_from(
        self,
        partition: int,
        request: ClaimRequest,
        request_id: str,
        extra: Mapping[str, Any] = MappingProxyType({}),
        patience_s: float | None = None,
    ) -> list[Claimed]:
        """Claim until the partition has no more; one script call checks a bounded number of tasks."""
        while True:
            asked = {**self._packed(request_id, request), **extra}
            more, *records = await self._link.run("claim", partition, asked, patience_s=patience_s)
            claimed: list[Claimed] = []
            for record in records:
                try:
                    claimed.append(read_aged(record))
                except UNREADABLE as error:
                    await self._set_aside(partition, record, error)
            if claimed or not more:
                return claimed

    def _packed(self, request_id: str, request: ClaimRequest) -> dict[str, Any]:
        packed = {
            "id": request_id,
            "worker": request.worker_id,
            "run_ids": request.run_ids,
            "names": sorted(request.names),
            "queues": request.queues,
            "lease_ms": request.lease_ms,
        }
        if request.capabilities:
            packed["capabilities"] = sorted(request.capabilities)
        return packed

    async def _set_aside(self, partition: int, record: Record, error: Exception) -> None:
        """Fail a claimed task whose record cannot be decoded, so that the other tasks can run."""
        remains = remains_of(record, f"{type(error).__name__}: {error}; its bytes are in quarantine")
        assert remains.error is not None
        failure = fail_run(remains, Failed(remains.error), now=remains.updated_at, randomness=0.5)
        await self._committing.quarantine(partition, failure)


def _unused(run_ids: Sequence[str], claimed: Sequence[Claimed]) -> list[str]:
    used = {task.run_id for _, task in claimed}
    return [run_id for run_id in run_ids if run_id not in used]


class PartitionHeads:
    """The first claimable tasks of several partitions, ranked by priority and seq."""

    def __init__(self, found: Mapping[int, list[Any]]) -> None:
        self.given_before = [partition for partition, (given, *_) in found.items() if given]
        self.ranked: list[Head] = sorted(
            (priority, int(seq), partition, name.decode())
            for partition, (_, _, *rows) in found.items()
            for priority, seq, name in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
        )
        self.has_limits = any(name for *_, name in self.ranked) or any(parked for _, parked, *_ in found.values())
