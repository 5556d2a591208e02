"""Decided changes are written: each commit whole or not at all, many commits in one call."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ade.errors import InvalidTask, NotConfirmed, StaleLease, StaleWrite
from ade.stores.redis.client.batcher import Batcher
from ade.stores.redis.client.client import RedisClient, Timing
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import is_revival, packed_change
from ade.stores.redis.cross_partition import CrossPartitionDependencies
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.wakeups import RedisWakeups
from ade.tasks.changes import Change

_MOST = 500  # changes in one call of the script, unless one caller brings more
_LARGE = 1 << 14  # bytes that weigh as much as a change more, so that no call takes long on a slow line
Verdicts = list[StaleWrite | None]


@dataclass(frozen=True, slots=True)
class _PartitionCommit:
    """What one caller changes in one partition; `packed` is the same for the script."""

    changes: Sequence[Change]
    packed: list[Any]
    together: bool
    remote: Mapping[str, Sequence[tuple[str, int]]]  # of tasks that run again: what they wait for in other partitions


def _weight(commit: _PartitionCommit) -> int:
    return sum(1 + len(change.after.result or b"") // _LARGE for change in commit.changes)


class RedisCommits:
    def __init__(
        self,
        link: RedisClient,
        places: Partitions,
        timing: Timing,
        crossing: CrossPartitionDependencies,
        wakeups: RedisWakeups | None,
    ) -> None:
        self._link = link
        self._places = places
        self._timing = timing
        self._crossing = crossing
        self._hints = wakeups
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
            except NotConfirmed as error:  # written all the same, and so must the rest be before the caller is told
                unconfirmed = error
                continue
            for refusal in refusals:
                if refusal is not None:
                    raise refusal
        if unconfirmed is not None:
            raise unconfirmed

    async def commit_each(self, changes: Sequence[Change]) -> Verdicts:
        """A partition that is away keeps none of the others from being written; the caller may repeat the whole."""
        by_partition = self._by_partition(changes)
        writing = (
            self._write(partition, [changes[position] for position in positions], together=False)
            for partition, positions in by_partition.items()
        )
        answers = await asyncio.gather(*writing, return_exceptions=True)
        verdicts: Verdicts = [None] * len(changes)
        for positions, answer in zip(by_partition.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            for position, verdict in zip(positions, answer, strict=True):
                verdicts[position] = verdict
        return verdicts

    async def quarantine(self, partition: int, failure: Change) -> None:
        """Fail a task whose record cannot be read, with its bytes kept for a person to look at."""
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
        """What the script must know when a change reaches beyond its partition."""
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
        request = {**self._timing(), "groups": [(commit.together, commit.packed) for commit in commits]}
        if any(change.guard.run_id is None for commit in commits for change in commit.changes):
            request["token"] = new_token()
        unconfirmed: NotConfirmed | None = None
        try:
            answer: Any = await self._link.run("commit", partition, request, confirm=self._must_confirm(commits))
        except NotConfirmed as error:
            unconfirmed, answer = error, error.answer
        posted, rung, groups = answer
        if self._hints is not None:
            self._hints.published(*(topic.decode() for topic in rung))
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
        """People who change something want to know it safe; the end of a run that is lost is only a run more."""
        return self._link.is_strong and any(commit.together for commit in commits)


def _check_movable(change: Change) -> None:
    if change.before.depends_on:
        raise InvalidTask(
            f"task {change.task_id} waits for others, so on a cluster it cannot go from queue {change.before.queue!r}"
            f" to {change.after.queue!r}, which another node may hold; make a new task instead"
        )


def _verdicts(commit: _PartitionCommit, answer: Sequence[Any]) -> Verdicts:
    """The answer to a commit: of each change, or of the whole if it is written completely or not at all."""
    if commit.together:
        verdict, *position = answer
        return [_refusal(commit.changes[position[0] - 1], verdict)] if position else [None]
    return [_refusal(change, verdict) for change, verdict in zip(commit.changes, answer, strict=True)]


def _refusal(change: Change, verdict: Any) -> StaleWrite | None:
    """None when the change is written, by this call or by an earlier one with the same content."""
    if verdict in (b"written", b"repeated"):
        return None
    if verdict == b"missing":
        refusal = StaleWrite if change.guard.run_id is None else StaleLease
        return refusal(f"task {change.task_id} does not exist any more; nothing was written")
    status = verdict[0].decode()
    if change.guard.run_id is None:
        return StaleWrite(f"task {change.task_id} changed while you were deciding; it is {status} now")
    return StaleLease(f"run {change.guard.run_id} no longer holds task {change.task_id}; it is {status} now")
