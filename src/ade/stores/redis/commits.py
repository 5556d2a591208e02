"""Commits of task changes: each is atomic within a partition, and many are sent in one call."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ade.errors import InvalidTask, NotConfirmed, StaleLease, StaleWrite, StoreUnavailable
from ade.stores.redis.client.batcher import Batcher
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import is_revival, packed_change
from ade.stores.redis.cross_partition import CrossPartitionDependencies
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.wakeups import RedisWakeups
from ade.tasks.changes import Change

_PATIENCE_S = 2.0  # for the commits of runs, which are repeated until they are answered
_MOST = 500  # changes in one script call, unless a single caller has more
_LARGE = 1 << 14  # bytes that count as one more change, so that no call takes long on a slow network
Verdicts = list[StaleWrite | None]


@dataclass(frozen=True, slots=True)
class _PartitionCommit:
    """The changes of one caller in one partition; `packed` is their form for the script."""

    changes: Sequence[Change]
    packed: list[Any]
    together: bool
    remote: Mapping[str, Sequence[tuple[str, int]]]  # dependencies in other partitions of tasks that run again


def _weight(commit: _PartitionCommit) -> int:
    return sum(1 + len(change.after.result or b"") // _LARGE for change in commit.changes)


class RedisCommits:
    """Write task changes, guarded by version or lease."""

    def __init__(
        self,
        link: RedisClient,
        places: Partitions,
        crossing: CrossPartitionDependencies,
        wakeups: RedisWakeups | None,
    ) -> None:
        self._link = link
        self._places = places
        self._crossing = crossing
        self._wakeups = wakeups
        self._batchers = [self._batcher(partition) for partition in places.all]

    def _batcher(self, partition: int) -> Batcher[_PartitionCommit, Verdicts]:
        async def send(commits: list[_PartitionCommit]) -> list[Verdicts | Exception]:
            return await self._send(partition, commits)

        return Batcher(send, weigh=_weight, most=_MOST)

    async def commit(self, changes: Sequence[Change]) -> None:
        if max(Counter(change.task_id for change in changes).values(), default=0) > 1:
            raise StaleWrite("one commit changes the same task twice; nothing was written")
        unconfirmed: NotConfirmed | None = None
        for partition, positions in self._by_partition(changes).items():
            try:
                refusals = await self._write(partition, [changes[position] for position in positions], together=True)
            except NotConfirmed as error:  # the changes are written; write the rest before raising
                unconfirmed = error
                continue
            for refusal in refusals:
                if refusal is not None:
                    raise refusal
        if unconfirmed is not None:
            raise unconfirmed

    async def commit_each(self, changes: Sequence[Change]) -> Verdicts:
        """Commit each change on its own, also if a partition is unreachable; the caller can repeat the whole call.

        On a cluster, the error of a partition that does not respond has the answers of the others.
        """
        by_partition = self._by_partition(changes)
        writing = (
            self._write_near(partition, [changes[position] for position in positions])
            for partition, positions in by_partition.items()
        )
        answers = await asyncio.gather(*writing, return_exceptions=True)
        verdicts: Verdicts = [None] * len(changes)
        unknown: dict[int, StoreUnavailable] = {}
        for (partition, positions), answer in zip(by_partition.items(), answers, strict=True):
            if isinstance(answer, StoreUnavailable) and self._link.partitions > 1:
                self._link.reach.note(partition, answer)
                unknown.update(dict.fromkeys(positions, answer))
                continue
            if isinstance(answer, BaseException):
                raise answer
            for position, verdict in zip(positions, answer, strict=True):
                verdicts[position] = verdict
        if unknown:
            error = StoreUnavailable(next(iter(unknown.values())).detail)
            error.answers = [unknown.get(place, verdict) for place, verdict in enumerate(verdicts)]
            raise error
        return verdicts

    async def _write_near(self, partition: int, changes: Sequence[Change]) -> Verdicts:
        """Write the changes of one partition; fail soon if it does not respond, because the others wait for it."""
        if self._link.partitions == 1:
            return await self._write(partition, changes, together=False)
        self._link.reach.check(partition)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._write(partition, changes, together=False)
        except TimeoutError:
            raise StoreUnavailable(f"partition {partition} of the cluster does not respond") from None

    async def quarantine(self, partition: int, failure: Change) -> None:
        """Fail a task whose record cannot be decoded, and keep a copy of its bytes for inspection."""
        await self._ask(partition, [failure], [{"quarantine": True}], together=False)

    async def _write(self, partition: int, changes: Sequence[Change], *, together: bool) -> Verdicts:
        return await self._ask(partition, changes, [await self._more(change) for change in changes], together=together)

    async def _ask(
        self, partition: int, changes: Sequence[Change], more: Sequence[dict[str, Any] | None], *, together: bool
    ) -> Verdicts:
        packed = [packed_change(change, extra) for change, extra in zip(changes, more, strict=True)]
        again = {
            change.task_id: extra["remote"]
            for change, extra in zip(changes, more, strict=True)
            if extra is not None and "remote" in extra
        }
        return await self._batchers[partition].ask(_PartitionCommit(changes, packed, together, again))

    async def _more(self, change: Change) -> dict[str, Any] | None:
        """Options for the script if a change affects other partitions."""
        if self._link.partitions == 1:
            return None
        here, there = (self._places.of_queue(task.queue) for task in (change.before, change.after))
        if here != there:
            _check_movable(change)
            return {"move_to": there}
        if not is_revival(change):
            return None
        remote = await self._crossing.remote_needs(change.after)
        afar = {on for on, _ in remote}
        return {"remote": remote, "depends_on": [on for on in change.after.depends_on if on not in afar]}

    def _by_partition(self, changes: Sequence[Change]) -> dict[int, list[int]]:
        positions: dict[int, list[int]] = {}
        for position, change in enumerate(changes):
            positions.setdefault(self._places.of_queue(change.before.queue), []).append(position)
        return positions

    async def _send(self, partition: int, commits: list[_PartitionCommit]) -> list[Verdicts | Exception]:
        request: dict[str, Any] = {"groups": [(commit.together, commit.packed) for commit in commits]}
        if any(change.guard.run_id is None for commit in commits for change in commit.changes):
            request["token"] = new_token()
        unconfirmed: NotConfirmed | None = None
        try:
            answer: Any = await self._link.run("commit", partition, request, confirm=self._must_confirm(commits))
        except NotConfirmed as error:
            unconfirmed, answer = error, error.answer
        posted, topics, groups = answer
        if self._wakeups is not None:
            self._wakeups.published(*(topic.decode() for topic in topics))
        revived = [
            (change.after, needs)
            for commit in commits
            for change in commit.changes
            if (needs := commit.remote.get(change.task_id))
        ]
        if posted or revived:
            await self._crossing.carry_on(partition, revived)
        if posted:
            self._places.forget(change.task_id for commit in commits for change in commit.changes)
        verdicts = map(_verdicts, commits, groups)
        return [
            unconfirmed if unconfirmed and commit.together and each == [None] else each
            for commit, each in zip(commits, verdicts, strict=True)
        ]

    def _must_confirm(self, commits: list[_PartitionCommit]) -> bool:
        """Confirm changes by people. The outcome of a run need not be: if it is lost, the task runs again."""
        return self._link.is_strong and any(commit.together for commit in commits)


def _check_movable(change: Change) -> None:
    if change.before.depends_on:
        raise InvalidTask(
            f"task {change.task_id} waits for others, so on a cluster it cannot go from queue {change.before.queue!r}"
            f" to {change.after.queue!r}, which another node may hold; make a new task instead"
        )


def _verdicts(commit: _PartitionCommit, answer: Sequence[Any]) -> Verdicts:
    """The verdicts of a commit: one per change, or a single one if the commit is atomic."""
    if commit.together:
        verdict, *position = answer
        return [_refusal(commit.changes[position[0] - 1], verdict)] if position else [None]
    return [_refusal(change, verdict) for change, verdict in zip(commit.changes, answer, strict=True)]


def _refusal(change: Change, verdict: Any) -> StaleWrite | None:
    """The error of a rejected change; None if this call or an earlier identical one has written it."""
    if verdict in (b"written", b"repeated"):
        return None
    if verdict == b"missing":
        refusal = StaleWrite if change.guard.run_id is None else StaleLease
        return refusal(f"task {change.task_id} no longer exists; nothing was written")
    status = verdict[0].decode()
    if change.guard.run_id is None:
        return StaleWrite(f"task {change.task_id} changed while you were deciding; it is {status} now")
    return StaleLease(f"run {change.guard.run_id} no longer holds task {change.task_id}; it is {status} now")
