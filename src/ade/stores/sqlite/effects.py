"""EffectStore and OutputStore on SQLite: the effects and output lines of runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw
from msgspec import Raw, structs

from ade.errors import StaleLease
from ade.stores.ports import Clock
from ade.stores.sqlite.codec import packed, raw
from ade.stores.sqlite.connection import run, value
from ade.tasks.model import MOST_OUTPUT_LINES, OUTPUT_CUT, Effect, OutputLine, lines_by_run

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import Writer


class SqliteEffects:
    """EffectStore: the ledger of external effects that must happen once."""

    def __init__(self, writer: "Writer", readers: "Readers", clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def begin(self, key: str, task_id: str, run_id: str) -> Effect:
        def write(connection: apsw.Connection) -> Effect:
            if not run(connection, "claims.is_run_live", task_id=task_id, run_id=run_id):
                raise StaleLease(f"run {run_id} no longer holds task {task_id}")
            run(connection, "effects.begin", key=key, task_id=task_id, run_id=run_id, now=self._clock.now())
            ((owner, its_task, done, answer, at),) = run(connection, "effects.get", key=key)
            return Effect(key=key, run_id=owner, task_id=its_task, done=bool(done), answer=raw(answer), at=at)

        effect: Effect = await self._writer.call(write)
        return effect

    async def finish(self, key: str, run_id: str, answer: Raw) -> None:
        text = bytes(answer).decode()

        def write(connection: apsw.Connection) -> bool:
            now = self._clock.now()
            return bool(run(connection, "effects.finish", key=key, run_id=run_id, answer=text, now=now))

        if not await self._writer.call(write):
            raise StaleLease(f"effect {key!r} is no longer entered for run {run_id}")

    async def forget(self, key: str) -> None:
        await self._writer.call(lambda connection: run(connection, "effects.delete", key=key))

    async def prune_effects(self, before_ms: int, limit: int) -> int:
        def write(connection: apsw.Connection) -> int:
            retained = run(connection, "effects.retain", before=before_ms, limit=limit, now=self._clock.now())
            return len(run(connection, "effects.prune", before=before_ms, limit=limit - len(retained)))

        pruned: int = await self._writer.call(write)
        return pruned

    async def is_live(self, task_id: str, run_id: str) -> bool:
        def read(connection: apsw.Connection) -> bool:
            return bool(run(connection, "claims.is_run_live", task_id=task_id, run_id=run_id))

        return await self._readers.call(read)


class SqliteOutputs:
    """OutputStore: output lines of runs, up to a limit per run."""

    def __init__(self, writer: "Writer", readers: "Readers") -> None:
        self._writer = writer
        self._readers = readers

    async def append(self, lines: Sequence[OutputLine]) -> None:
        if not lines:
            return
        by_run = lines_by_run(lines)

        def write(connection: apsw.Connection) -> None:
            for (task_id, run_id), written in by_run.items():
                known = value(connection, "output.count", task_id=task_id, run_id=run_id)
                run(connection, "output.append", rows=packed([_row(line) for line in _fitting(written, known)]))

        await self._writer.call(write)

    async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
        def read(connection: apsw.Connection) -> list[OutputLine]:
            rows = run(connection, "output.read", task_id=task_id, after=after, limit=limit)
            return [
                OutputLine(seq=seq, task_id=task_id, run_id=run_id, attempt=attempt, at=at, stream=stream, text=text)
                for seq, run_id, attempt, at, stream, text in rows
            ]

        return await self._readers.call(read)


def _fitting(lines: list[OutputLine], known: int) -> list[OutputLine]:
    """Return the lines within the limit, plus one truncation mark when the limit is reached."""
    if known > MOST_OUTPUT_LINES:  # the mark is already stored
        return []
    stored = lines[: MOST_OUTPUT_LINES - known]
    if len(stored) < len(lines):
        stored.append(structs.replace(lines[len(stored)], stream="mark", text=OUTPUT_CUT))
    return stored


def _row(line: OutputLine) -> tuple[object, ...]:
    """Parameters of output.append."""
    return (line.task_id, line.run_id, line.attempt, line.at, line.stream, line.text)
