"""OutputStore on Redis: the lines of a task are a stream beside its record, numbered from 1."""

from collections.abc import Sequence
from typing import Any

from ade.core.records import OutputLine
from ade.stores.redis.link import Link
from ade.stores.redis.places import Partitions
from ade.stores.redis.tokens import new_token

MOST_LINES = 10_000  # of one run; what is beyond is cut with a mark
_MARK = f"[output cut after {MOST_LINES} lines]"


class RedisOutputs:
    def __init__(self, link: Link, places: Partitions) -> None:
        self._link = link
        self._places = places

    async def append(self, lines: Sequence[OutputLine]) -> None:
        if not lines:
            return
        by_run: dict[tuple[str, str], list[OutputLine]] = {}
        for line in lines:
            by_run.setdefault((line.task_id, line.run_id), []).append(line)
        places = await self._places.of_all(list({line.task_id for line in lines}))
        token = new_token()
        for partition in sorted(set(places.values())):
            runs = [
                (task_id, run_id, [_packed(line) for line in written[: MOST_LINES + 1]])
                for (task_id, run_id), written in by_run.items()
                if places.get(task_id) == partition
            ]
            request = {"runs": runs, "most": MOST_LINES, "mark": _MARK, "token": token}
            await self._link.run("append", partition, request)

    async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
        partition = await self._places.of(task_id)
        request = {"id": task_id, "after": max(after, 0), "limit": limit}
        entries = await self._link.run("read_output", partition, request) if limit > 0 else []
        return [_line(task_id, number, fields) for number, fields in entries]


def _packed(line: OutputLine) -> tuple[int, int, str, str]:
    """A line for lua/append.lua."""
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
