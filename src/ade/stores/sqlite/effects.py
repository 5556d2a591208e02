"""EffectStore and OutputStore on SQLite: what runs leave behind besides their result."""

from collections.abc import Sequence

import apsw
from msgspec import Raw

from ade.core.errors import StaleLease
from ade.core.records import Effect, OutputLine
from ade.ports import Clock
from ade.stores.sqlite.codec import packed, raw
from ade.stores.sqlite.readers import Readers
from ade.stores.sqlite.statements import run, value
from ade.stores.sqlite.writer import Writer

MOST_LINES = 10_000  # of one run; what is beyond is cut with a mark


class SqliteEffects:
    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def begin(self, key: str, run_id: str) -> Effect:
        def write(connection: apsw.Connection) -> Effect:
            run(connection, "begin_effect", key=key, run_id=run_id, now=self._clock.now())
            ((owner, done, answer, at),) = run(connection, "get_effect", key=key)
            return Effect(key=key, run_id=owner, done=bool(done), answer=raw(answer), at=at)

        effect: Effect = await self._writer.call(write)
        return effect

    async def finish(self, key: str, run_id: str, answer: Raw) -> None:
        text = bytes(answer).decode()

        def write(connection: apsw.Connection) -> bool:
            now = self._clock.now()
            return bool(run(connection, "finish_effect", key=key, run_id=run_id, answer=text, now=now))

        if not await self._writer.call(write):
            raise StaleLease(f"effect {key!r} is no longer entered for run {run_id}")

    async def forget(self, key: str) -> None:
        await self._writer.call(lambda connection: run(connection, "forget_effect", key=key))

    async def is_live(self, run_id: str) -> bool:
        return bool(await self._readers.call(lambda connection: run(connection, "is_live", run_id=run_id)))


class SqliteOutputs:
    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def append(self, lines: Sequence[OutputLine]) -> None:
        if not lines:
            return
        rows = [(line.task_id, line.run_id, line.attempt, line.at, line.stream, line.text) for line in lines]
        first = lines[0]

        def write(connection: apsw.Connection) -> None:
            written = value(connection, "count_output", task_id=first.task_id, run_id=first.run_id)
            room = MOST_LINES - written
            if room <= 0:
                return
            kept = rows[:room]
            if len(rows) > room or written + len(kept) == MOST_LINES:
                mark = f"[output cut after {MOST_LINES} lines]"
                kept[-1] = (*kept[-1][:4], "mark", mark)
            run(connection, "append_output", rows=packed(kept))

        await self._writer.call(write)

    async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
        def read(connection: apsw.Connection) -> list[OutputLine]:
            rows = run(connection, "read_output", task_id=task_id, after=after, limit=limit)
            return [
                OutputLine(seq=seq, task_id=task_id, run_id=run_id, attempt=attempt, at=at, stream=stream, text=text)
                for seq, run_id, attempt, at, stream, text in rows
            ]

        return await self._readers.call(read)
