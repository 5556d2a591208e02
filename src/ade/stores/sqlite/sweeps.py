"""SweepStore on SQLite: what the periodic sweep of tasks reads and deletes. Jobs have leases: one process does each."""

from collections import Counter
from collections.abc import Mapping, Sequence

import apsw

from ade.stores.ports import Clock, DueTasks
from ade.stores.sqlite.blobs import SqliteBlobs, is_ref_of, is_unfinished
from ade.stores.sqlite.codec import packed, read_records, task_of, unpacked
from ade.stores.sqlite.connection import run, value
from ade.stores.sqlite.readers import Readers
from ade.stores.sqlite.writer import Writer
from ade.tasks.model import Task

_PORTION = 500


class SqliteSweeps:
    """SweepStore: due tasks, leases on jobs, and the deletion of old tasks and orphaned blobs."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock, blobs: SqliteBlobs) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._blobs = blobs

    async def due(self, limit: int) -> DueTasks:
        def read(connection: apsw.Connection) -> tuple[DueTasks, bool]:
            broken = run(connection, "dependencies.due_broken", limit=limit)
            due = DueTasks(
                expired=read_records(connection, "claims.due_expired", steady=self._clock.steady(), limit=limit),
                overdue=read_records(connection, "claims.due_overdue", now=self._clock.now(), limit=limit),
                broken=[(task_of(connection, seq, record), tuple(unpacked(ids))) for seq, record, ids in broken],
            )
            return due, bool(run(connection, "claims.any_idle_parked"))

        due, parked_in_vain = await self._readers.call(read)
        if parked_in_vain:
            await self._writer.call(lambda connection: run(connection, "claims.unpark_idle"))
        return due

    async def next_due(self) -> int | None:
        due: int | None = await self._readers.call(lambda connection: value(connection, "claims.next_due"))
        return due

    async def take_duty(self, duty: str, holder: str, ttl_ms: int) -> bool:
        def write(connection: apsw.Connection) -> bool:
            steady = self._clock.steady()
            return bool(run(connection, "jobs.claim", duty=duty, holder=holder, until=steady + ttl_ms, steady=steady))

        taken: bool = await self._writer.call(write)
        return taken

    async def jobs(self) -> Mapping[str, int]:
        return await self._readers.call(lambda c: dict(run(c, "jobs.list")))

    async def finished_before(
        self, moment: int, limit: int, *, dead_letters: int | None = None, governed: int | None = None
    ) -> list[Task]:
        bounds = {
            "moment": moment,
            "letters": moment if dead_letters is None else dead_letters,
            "governed": moment if governed is None else governed,
        }

        def read(connection: apsw.Connection) -> list[Task]:
            return read_records(connection, "tasks.list_finished_before", limit=limit, **bounds)

        return await self._readers.call(read)

    async def prune(self, task_ids: Sequence[str]) -> int:
        def write(connection: apsw.Connection) -> list[str]:
            rows = run(connection, "tasks.prune", ids=packed(task_ids))
            seqs, ids = packed([row[0] for row in rows]), [row[1] for row in rows]
            for part in ("tasks.prune_detail", "tasks.prune_labels", "tasks.prune_outcome", "output.prune"):
                run(connection, part, seqs=seqs)
            run(connection, "dependencies.delete", seqs=seqs)
            run(connection, "tasks.prune_quarantine", ids=packed(ids))
            moves = Counter((queue, name, status) for _, _, queue, name, status in rows)
            run(
                connection,
                "queues.update_status_counts",
                rows=packed([(*lane, -count) for lane, count in moves.items()]),
            )
            run(connection, "queues.delete_empty_counts")
            return ids

        pruned: list[str] = await self._writer.call(write)
        await self._blobs.remove_blobs(pruned)
        return len(pruned)

    async def expire_results(self, limit: int) -> int:
        def write(connection: apsw.Connection) -> tuple[int, list[str]]:
            now = self._clock.now()
            listed = run(connection, "tasks.list_expiring_blobs", now=now, limit=limit)
            refs = [ref for task_id, ref in listed if is_ref_of(task_id, ref)]
            return len(run(connection, "tasks.expire_results", now=now, limit=limit)), refs

        count, refs = await self._writer.call(write)
        await self._blobs.remove_refs(refs)
        return int(count)

    async def remove_orphans(self, older_than_ms: int, limit: int) -> int:
        moment = self._clock.now() - older_than_ms
        orphans: list[str] = []
        refs = await self._blobs.put_before(moment)
        for first in range(0, len(refs), _PORTION):
            portion = refs[first : first + _PORTION]
            known = await self._known([ref.partition(".")[0] for ref in portion])
            orphans += [ref for ref in portion if is_unfinished(ref) or ref.partition(".")[0] not in known]
            if len(orphans) >= limit:
                break
        await self._blobs.remove_if_old(orphans, moment)
        return len(orphans)

    async def _known(self, task_ids: Sequence[str]) -> set[str]:
        def read(connection: apsw.Connection) -> set[str]:
            return {row[0] for row in run(connection, "tasks.existing_ids", ids=packed(task_ids))}

        return await self._readers.call(read)
