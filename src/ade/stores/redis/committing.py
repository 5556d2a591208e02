"""Decided changes are written: each commit whole or not at all, many commits in one call."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ade.core.change import Change
from ade.core.errors import StaleLease, StaleWrite
from ade.ports import WORK, Hints
from ade.stores.redis.batching import Batcher
from ade.stores.redis.codec import is_revival, packed_change
from ade.stores.redis.crossing import Crossing
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.timing import Timing

_MOST = 500  # changes in one call of the script, unless one caller brings more
Verdicts = list[StaleWrite | None]


@dataclass(frozen=True, slots=True)
class _Commit:
    """What one caller changes in one partition; `packed` is the same for the script."""

    changes: Sequence[Change]
    packed: list[Any]
    together: bool
    remote: Mapping[str, Sequence[tuple[str, int]]]  # of tasks that run again: what they wait for in other partitions


class Committing:
    def __init__(self, link: Link, places: Partitions, timing: Timing, crossing: Crossing, hints: Hints | None) -> None:
        self._link = link
        self._places = places
        self._timing = timing
        self._crossing = crossing
        self._hints = hints
        self._batchers = [self._batcher(partition) for partition in places.all]

    def _batcher(self, partition: int) -> Batcher[_Commit, Verdicts]:
        async def send(commits: list[_Commit]) -> list[Verdicts | Exception]:
            return await self._send(partition, commits)

        return Batcher(send, weigh=lambda commit: len(commit.changes), most=_MOST)

    async def commit(self, changes: Sequence[Change]) -> None:
        if max(Counter(change.task_id for change in changes).values(), default=0) > 1:
            raise StaleWrite("one commit changes the same task twice; nothing was written")
        for partition, positions in self._by_partition(changes).items():
            portion = [changes[position] for position in positions]
            for refusal in await self._write(partition, portion, together=True):
                if refusal is not None:
                    raise refusal

    async def commit_each(self, changes: Sequence[Change]) -> Verdicts:
        verdicts: Verdicts = [None] * len(changes)
        for partition, positions in self._by_partition(changes).items():
            answers = await self._write(partition, [changes[position] for position in positions], together=False)
            for position, verdict in zip(positions, answers, strict=True):
                verdicts[position] = verdict
        return verdicts

    async def quarantine(self, partition: int, failure: Change) -> None:
        """Fail a task whose record cannot be read, with its bytes kept for a person to look at."""
        await self._write(partition, [failure], together=False, quarantine=True)

    async def _write(
        self, partition: int, changes: Sequence[Change], *, together: bool, quarantine: bool = False
    ) -> Verdicts:
        remote = await self._remote_needs(changes)
        packed = [
            packed_change(change, quarantine=quarantine, remote=remote.get(change.task_id, ())) for change in changes
        ]
        return await self._batchers[partition].ask(_Commit(changes, packed, together, remote))

    def _by_partition(self, changes: Sequence[Change]) -> dict[int, list[int]]:
        positions: dict[int, list[int]] = {}
        for position, change in enumerate(changes):
            positions.setdefault(self._places.of_queue(change.before.queue), []).append(position)
        return positions

    async def _send(self, partition: int, commits: list[_Commit]) -> list[Verdicts | Exception]:
        request = {**self._timing(), "groups": [[commit.together, commit.packed] for commit in commits]}
        posted, freed, answers = await self._link.run("commit", partition, request)
        if freed and self._hints is not None:
            self._hints.ring(WORK)
        if posted:
            await self._crossing.deliver(partition)
        for commit in commits:
            revived = {change.task_id: change.after for change in commit.changes}
            for task_id, needs in commit.remote.items():
                await self._crossing.make_known(revived[task_id], needs, again=True)
        return [_verdicts(*pair) for pair in zip(commits, answers, strict=True)]

    async def _remote_needs(self, changes: Sequence[Change]) -> dict[str, list[tuple[str, int]]]:
        """Of tasks that are to run again: what they wait for in other partitions."""
        if self._link.partitions == 1:
            return {}
        revived = [change.after for change in changes if is_revival(change)]
        found = {task.id: await self._crossing.remote_needs(task) for task in revived}
        return {task_id: needs for task_id, needs in found.items() if needs}


def _verdicts(commit: _Commit, answer: list[Any]) -> Verdicts:
    if not commit.together:
        return [_refusal(change, verdict) for change, verdict in zip(commit.changes, answer, strict=True)]
    verdict, *at = answer
    return [_refusal(commit.changes[at[0] - 1], verdict)] if at else [None]


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
