"""WorkerStore on SQLite: workers, their leases, and the registered task definitions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import apsw
import msgspec
from msgspec import structs

from ade.stores.ports import Clock, Renewal
from ade.stores.sqlite.codec import packed
from ade.stores.sqlite.connection import run
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Worker

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import LeaseWriter, Writer

FORGET_AFTER_MS = 600_000  # a lost worker stays visible for 10 minutes
_definition = msgspec.json.Decoder(Definition).decode


class SqliteWorkers:
    """WorkerStore: registered workers, lease renewal, and task definitions."""

    def __init__(self, writer: "Writer", readers: "Readers", clock: Clock, renewals: "LeaseWriter") -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._renewals = renewals
        self._decoded: dict[str, Definition] = {}  # by JSON text: most are unchanged at the next read

    async def register(self, worker: Worker, definitions: Sequence[Definition], ttl_ms: int) -> None:
        rows = packed([(definition.name, definition, _is_limited(definition)) for definition in definitions])

        def write(connection: apsw.Connection) -> None:
            self._write_worker(connection, worker, ttl_ms)
            for (name,) in run(connection, "definitions.put", rows=rows):
                run(connection, "claims.unpark_name", name=name)

        await self._writer.call(write)

    def renew(self, worker: Worker, runs: Mapping[str, str], *, lease_ms: int, claiming: Sequence[str] = ()) -> Renewal:
        run_ids = packed([*runs, *claiming])

        def write(connection: apsw.Connection) -> Renewal:
            self._write_worker(connection, worker, lease_ms)
            until = self._clock.steady() + lease_ms
            rows = run(connection, "claims.renew_leases", run_ids=run_ids, worker_id=worker.id, until=until)
            lost = [(run_id, runs[run_id]) for run_id in runs.keys() - {run_id for (run_id,) in rows}]
            found = run(connection, "claims.list_lost_runs", rows=packed(lost)) if lost else []
            return Renewal(gone={run_id: Status(status) if status else None for run_id, status in found})

        return self._renewals.call(write)

    def _write_worker(self, connection: apsw.Connection, worker: Worker, ttl_ms: int) -> None:
        until = self._clock.steady() + ttl_ms
        text = packed(structs.replace(worker, heartbeat_until=until))
        run(connection, "workers.register", id=worker.id, worker=text, until=until)

    async def deregister(self, worker_id: str) -> None:
        await self._writer.call(lambda connection: run(connection, "workers.deregister", id=worker_id))

    async def list_workers(self) -> list[Worker]:
        def read(connection: apsw.Connection) -> list[Worker]:
            return [msgspec.json.decode(text, type=Worker) for text, _ in run(connection, "workers.list")]

        return await self._readers.call(read)

    async def forget_silent(self) -> list[str]:
        def write(connection: apsw.Connection) -> list[str]:
            moment = self._clock.steady() - FORGET_AFTER_MS
            return [worker_id for (worker_id,) in run(connection, "workers.delete_lost", steady=moment)]

        forgotten: list[str] = await self._writer.call(write)
        return forgotten

    async def definitions(self) -> list[Definition]:
        def read(connection: apsw.Connection) -> list[Definition]:
            known = self._decoded
            found = {text: known.get(text) or _definition(text) for (text,) in run(connection, "definitions.list")}
            self._decoded = found
            return list(found.values())

        return await self._readers.call(read)


def _is_limited(definition: Definition) -> bool:
    limits = (definition.concurrency, definition.concurrency_per_key, definition.rate_count)
    return any(limit is not None for limit in limits)
