"""Effect ledger and task output on Redis.

The output lines of a task are a stream next to its record, numbered from 1.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

from msgspec import Raw

from ade.errors import StaleLease, StoreUnavailable
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.topology import SHORT_PATIENCE_S
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import as_text
from ade.stores.redis.partitions import Partitions, partition_of_key
from ade.tasks.model import MOST_OUTPUT_LINES, OUTPUT_CUT, Effect, OutputLine, lines_by_run


class RedisEffects:
    """The ledger of side effects (`ctx.once`), distributed over the partitions by key.

    A task and its effects are usually in different partitions, so the lease is checked before an effect is entered. A
    run that loses its lease in between enters the effect, and the next run of the task finds it entered.
    """

    def __init__(self, link: RedisClient, places: Partitions) -> None:
        self._link = link
        self._places = places

    async def begin(self, key: str, task_id: str, run_id: str) -> Effect:
        if not await self.is_live(task_id, run_id):
            raise StaleLease(f"run {run_id} no longer holds task {task_id}")
        owner, its_task, done, answer, at = await self._apply("begin", key, run_id=run_id, task_id=task_id)
        return Effect(
            key=key,
            run_id=owner.decode(),
            task_id=(its_task or b"").decode(),
            done=done == b"1",
            answer=None if answer is None else Raw(answer),
            at=int(at),
        )

    async def finish(self, key: str, run_id: str, answer: Raw) -> None:
        if not await self._apply("finish", key, run_id=run_id, answer=as_text(bytes(answer))):
            raise StaleLease(f"effect {key!r} is no longer entered for run {run_id}")

    async def forget(self, key: str) -> None:
        await self._apply("delete", key, token=new_token())

    async def prune_effects(self, before_ms: int, limit: int) -> int:
        """Examine at most `limit` effects: those whose tasks still exist count too."""
        pruned = 0

        async def prune_in(partition: int, left: int, patience_s: float | None) -> int:
            nonlocal pruned
            request: dict[str, Any] = {"before": before_ms, "limit": left}
            old = await self._link.run("old_effects", partition, request, patience_s=patience_s)
            tasks = {digest: task_id.decode() for digest, task_id in old}
            existing = await self._places.existing(sorted(set(tasks.values()) - {""}))
            gone = [digest.decode() for digest, task_id in tasks.items() if task_id not in existing]
            retained = [digest.decode() for digest, task_id in tasks.items() if task_id in existing]
            request = {"before": before_ms, "gone": gone, "retained": retained, "token": new_token()}
            pruned += int(await self._link.run("prune_effects", partition, request)) if tasks else 0
            return len(tasks)

        await self._link.reach.in_turn(self._places.all, prune_in, limit)
        return pruned

    async def is_live(self, task_id: str, run_id: str) -> bool:
        partition = await self._places.of(task_id)
        return bool(await self._link.run("is_run_live", partition, {"id": task_id, "run_id": run_id}))

    async def _apply(self, verb: str, key: str, **more: Any) -> Any:
        digest = hashlib.sha256(key.encode()).hexdigest()
        request = {"verb": verb, "digest": digest, "key": key, **more}
        return await self._link.run("effect", partition_of_key(digest, self._link.partitions), request)


class RedisOutputs:
    """The output lines of tasks."""

    def __init__(self, link: RedisClient, places: Partitions) -> None:
        self._link = link
        self._places = places

    async def append(self, lines: Sequence[OutputLine]) -> None:
        if not lines:
            return
        by_run = lines_by_run(lines)
        places = await self._places.of_all(list({line.task_id for line in lines}))
        token = new_token()

        async def append_in(partition: int) -> None:
            runs = [
                (task_id, run_id, [_packed(line) for line in written[: MOST_OUTPUT_LINES + 1]])
                for (task_id, run_id), written in by_run.items()
                if places.get(task_id) == partition
            ]
            request = {"runs": runs, "most": MOST_OUTPUT_LINES, "mark": OUTPUT_CUT, "token": token}
            self._link.reach.check(partition)
            patience_s = None if self._link.partitions == 1 else SHORT_PATIENCE_S
            await self._link.run("append_output", partition, request, patience_s=patience_s)

        targets = sorted(set(places.values()))
        if self._link.partitions == 1:
            await append_in(0)
            return
        answers = await asyncio.gather(*map(append_in, targets), return_exceptions=True)
        away: dict[int, StoreUnavailable] = {}
        for partition, answer in zip(targets, answers, strict=True):
            if isinstance(answer, StoreUnavailable):
                away[partition] = answer
                self._link.reach.note(partition, answer)
            elif isinstance(answer, BaseException):
                raise answer
        if away:  # the lines of the others are stored
            error = StoreUnavailable(next(iter(away.values())).detail)
            error.answers = [away.get(places.get(line.task_id, -1)) for line in lines]
            raise error

    async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
        partition = await self._places.of(task_id)
        request = {"id": task_id, "after": max(after, 0), "limit": limit}
        entries = await self._link.run("read_output", partition, request) if limit > 0 else []
        return [_line(task_id, number, fields) for number, fields in entries]


def _packed(line: OutputLine) -> tuple[int, int, str, str]:
    """A line for lua/append_output.lua."""
    return line.attempt, line.at, line.stream, line.text


def _line(task_id: str, number: bytes, fields: Sequence[bytes]) -> OutputLine:
    values: dict[bytes, Any] = dict(zip(fields[::2], fields[1::2], strict=True))
    return OutputLine(
        seq=int(number.partition(b"-")[0]),
        task_id=task_id,
        run_id=values[b"run_id"].decode(),
        attempt=int(values[b"attempt"]),
        at=int(values[b"at"]),
        stream=values[b"stream"].decode(),
        text=values[b"text"].decode(),
    )
