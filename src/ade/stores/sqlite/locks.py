"""LockStore on SQLite: the rules of `ade.locks.rules`, applied and written in one write transaction."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import apsw
import msgspec

from ade.locks import rules as locks_rules
from ade.locks.deadlocks import DeadlockVictimChoice, GrantReturn, Resolution
from ade.locks.model import DEFAULT_NAMESPACE, LockLimits, LockLoad, LockRequest, LockState
from ade.locks.rules import NEWS_FOR_OTHERS, LockTable
from ade.stores.ports import LOCK, LOST, Clock, Wakeups
from ade.stores.resource_ports import LockQuery, LockUpdates
from ade.stores.sqlite.codec import packed
from ade.stores.sqlite.connection import run, sql

if TYPE_CHECKING:
    from ade.stores.sqlite.readers import Readers
    from ade.stores.sqlite.writer import Writer

Answer = TypeVar("Answer")
_Asking = Callable[[apsw.Connection, LockTable], LockRequest | None]
_RATE_KEPT_MS = 60_000  # after a rate limit is unused again; deleting it late loses nothing and saves writes
_decode = msgspec.json.Decoder(LockRequest).decode


class SqliteLocks:
    """LockStore: lock requests, holders, and wait queues, by namespace."""

    def __init__(self, writer: "Writer", readers: "Readers", clock: Clock, wakeups: Wakeups) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock
        self._wakeups = wakeups

    async def acquire(
        self, request: LockRequest, *, wait_ms: int | None, first_seq: int = 0, limits: LockLimits
    ) -> LockRequest | None:
        return await self._do(request.namespace, self._asking(request, wait_ms, first_seq, limits))

    def acquire_blocking(self, request: LockRequest, *, wait_ms: int | None, limits: LockLimits) -> LockRequest | None:
        return self._do_blocking(request.namespace, self._asking(request, wait_ms, 0, limits))

    def release_blocking(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        return self._do_blocking(namespace, lambda _, book: [locks_rules.release(book, each) for each in request_ids])

    def _asking(self, request: LockRequest, wait_ms: int | None, first_seq: int, limits: LockLimits) -> _Asking:
        def verb(connection: apsw.Connection, book: LockTable) -> LockRequest | None:
            resources = packed(request.resources)
            [counted] = run(
                connection, "locks.get_load", namespace=request.namespace, owner=request.owner, resources=resources
            )
            crowd = LockLoad(*counted)
            return locks_rules.acquire(book, request, wait_ms=wait_ms, first_seq=first_seq, crowd=crowd, limits=limits)

        return verb

    async def poll(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        return await self._do(namespace, lambda _, book: [locks_rules.poll(book, each) for each in request_ids])

    async def look(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        def read(connection: apsw.Connection) -> list[LockRequest | None]:
            rows = run(connection, "locks.poll", namespace=namespace, ids=packed(request_ids))
            known = {one.id: one for one in (_decode(text) for (text,) in rows)}
            return [known.get(each) for each in request_ids]

        return await self._readers.call(read)

    async def renew(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        return await self._do(namespace, lambda _, book: [locks_rules.renew(book, each) for each in request_ids])

    def renew_blocking(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        return self._do_blocking(namespace, lambda _, book: [locks_rules.renew(book, each) for each in request_ids])

    async def release(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        return await self._do(namespace, lambda _, book: [locks_rules.release(book, each) for each in request_ids])

    async def upgrade(
        self, namespace: str, grant_id: str, resource: str, *, upgrade_id: str, wait_ms: int | None
    ) -> LockRequest | None:
        return await self._do(
            namespace,
            lambda _, book: locks_rules.upgrade(book, grant_id, resource, upgrade_id=upgrade_id, wait_ms=wait_ms),
        )

    async def downgrade(self, namespace: str, grant_id: str, resource: str) -> LockRequest:
        return await self._do(namespace, lambda _, book: locks_rules.downgrade(book, grant_id, resource))

    async def take_away(self, namespace: str, request_id: str, *, reason: str, by: str) -> LockRequest | None:
        taken = await self._do(
            namespace, lambda _, book: locks_rules.force_release(book, request_id, reason=reason, by=by)
        )
        if taken is not None:
            self._wakeups.notify(LOST)
        return taken

    async def cure(self, namespace: str, cure: Resolution, cycle: tuple[str, ...]) -> LockRequest | None:
        def verb(_: apsw.Connection, book: LockTable) -> LockRequest | None:
            if isinstance(cure, DeadlockVictimChoice):
                return locks_rules.abort_victim(book, cure.request_id, cycle=cycle)
            if isinstance(cure, GrantReturn):
                return locks_rules.return_grant(book, cure.request_id)
            return locks_rules.let_pass(book, cure.request_id, before=cure.before)

        return await self._do(namespace, verb)

    async def find(self, query: LockQuery) -> list[LockRequest]:
        return await self._readers.call(lambda connection: list(islice(_found(connection, query), query.limit)))

    def follow(self, tell: Callable[[LockUpdates | None], None]) -> Callable[[], None]:
        return self._wakeups.follow(LOCK, lambda: tell(None))

    async def called(self, limit: int) -> list[LockRequest]:
        rows = await self._readers.call(lambda c: run(c, "locks.list_granted", limit=limit))
        return [_decode(text) for (text,) in rows]

    async def bury(self, limit: int) -> int:
        """Look with a reader first: usually no lease has expired, and then nothing is written."""
        moment = self._clock.steady()
        rows = await self._readers.call(lambda c: run(c, "locks.list_expired", now=moment, limit=limit))
        by_namespace: dict[str, list[str]] = {}
        for namespace, request_id in rows:
            by_namespace.setdefault(namespace, []).append(request_id)
        await self._forget_rates((moment - _RATE_KEPT_MS) * 1000, limit)
        for namespace, ids in by_namespace.items():
            await self._do(namespace, lambda _, book, ids=ids: locks_rules.reap(book, ids))  # type: ignore[misc]  # bound now
        return len(rows)

    async def _forget_rates(self, since: int, limit: int) -> None:
        """Delete the rate limit state of owners whose full rate is available again."""
        idle = await self._readers.call(lambda c: run(c, "locks.list_idle_rates", since=since, limit=limit))
        if idle:
            await self._writer.call(lambda c: run(c, "locks.delete_rates", owners=packed(idle), since=since))

    async def _do(self, namespace: str, verb: Callable[[apsw.Connection, LockTable], Answer]) -> Answer:
        """Apply an operation and write its changes; send a LOCK wake-up if waiters are affected."""
        answer, is_news = await self._writer.call(self._carrying_out(namespace, verb))
        if is_news:
            self._wakeups.notify(LOCK)
        return answer  # type: ignore[no-any-return]  # the return value of `verb`

    def _do_blocking(self, namespace: str, verb: Callable[[apsw.Connection, LockTable], Answer]) -> Answer:
        answer, is_news = self._writer.call_blocking(self._carrying_out(namespace, verb))
        if is_news:
            self._wakeups.notify(LOCK)
        return answer  # type: ignore[no-any-return]  # the return value of `verb`

    def _carrying_out(
        self, namespace: str, verb: Callable[[apsw.Connection, LockTable], Answer]
    ) -> Callable[[apsw.Connection], tuple[Answer, bool]]:
        """Return the write function. It returns the answer of `verb`, and whether waiters must be notified."""

        def write(connection: apsw.Connection) -> tuple[Answer, bool]:
            view = _StoredLockTable(connection, namespace)
            book = LockTable(view, now_us=self._clock.now() * 1000, steady_ms=self._clock.steady())
            answer = verb(connection, book)
            _write(connection, namespace, book, view)
            return answer, any(event.type in NEWS_FOR_OTHERS for event in book.events)

        return write


class _StoredLockTable:
    """The lock table of one namespace, read on demand."""

    def __init__(self, connection: apsw.Connection, namespace: str) -> None:
        self._connection = connection
        self._namespace = namespace
        self.read: dict[str, LockRequest] = {}  # requests as they were before the change

    def get(self, request_id: str) -> LockRequest | None:
        rows = run(self._connection, "locks.get", id=request_id, namespace=self._namespace)
        return self._known(rows[0][0]) if rows else None

    def holders(self, resource: str) -> Iterable[LockRequest]:
        return [self._known(text) for (text,) in self._standing(resource, granted=1)]

    def line(self, resource: str) -> Iterator[LockRequest]:
        for (text,) in self._standing(resource, granted=0):
            yield self._known(text)

    def newest(self) -> tuple[int, int]:
        rows = run(self._connection, "locks.get_namespace", namespace=self._namespace)
        return rows[0] if rows else (0, 0)

    def _standing(self, resource: str, *, granted: int) -> Iterable[tuple[str]]:
        bindings = {"namespace": self._namespace, "resource": resource, "granted": granted}
        return self._connection.execute(sql("locks.list_positions"), bindings)

    def _known(self, text: str) -> LockRequest:
        request = _decode(text)
        self.read[request.id] = request
        return request


def _found(connection: apsw.Connection, query: LockQuery) -> Iterator[LockRequest]:
    """Search with the most selective index, and filter its rows by the rest of the query."""
    statement, place = "locks.list", {"namespace": query.namespace, "limit": query.limit}
    if query.resource is not None:
        statement, place = "locks.list_positions", {"namespace": query.namespace or DEFAULT_NAMESPACE}
    elif query.owner is not None:
        statement, place = "locks.list_by_owner", {"namespace": query.namespace, "owner": query.owner}
    elif query.kind is not None:
        statement, place["kind"] = "locks.list_by_kind", query.kind
    at_resource = [{"resource": query.resource, "granted": granted} for granted in (1, 0)]
    for more in at_resource if query.resource is not None else [{}]:
        for (text,) in connection.execute(sql(statement), place | more):
            request = _decode(text)
            if query.owner in (None, request.owner) and (query.kind is None or request.stands_at(query.kind)):
                yield request


def _write(connection: apsw.Connection, namespace: str, book: LockTable, view: _StoredLockTable) -> None:
    for owner, full_at in book.rates.items():
        run(connection, "locks.put_rate", namespace=namespace, owner=owner, full_at=full_at)
    if not book.changed and not book.removed:
        return
    gone = [view.read[each] for each in (*book.changed, *book.removed) if each in view.read]
    moved = [one for one in gone if one.id in book.removed or _places(one) != _places(book.changed[one.id])]
    run(connection, "locks.delete_items", rows=packed([place for one in moved for place in _places(one)]))
    run(connection, "locks.delete", ids=packed(list(book.removed)))
    run(connection, "locks.put", rows=packed([_row(one) for one in book.changed.values()]))
    unmoved = {one.id for one in gone} - {one.id for one in moved}
    new = [one for one in book.changed.values() if one.id not in unmoved]
    run(connection, "locks.put_items", rows=packed([place for one in new for place in _places(one)]))
    run(connection, "locks.put_namespace", namespace=namespace, seq=book.seq, token=book.token)
    events = [(event.type, event.at, event.task_id, event.actor, event.payload) for event in book.events]
    run(connection, "locks.insert_events", rows=packed(events))


Place = tuple[str, str, bool, float, int, str]


def _places(request: LockRequest) -> list[Place]:
    """Return the position rows of a request: one for each resource, none for a deadlock victim."""
    if request.state is LockState.VICTIM:
        return []
    at = (request.is_granted, request.rank, request.seq, request.id)
    return [(request.namespace, item.resource, *at) for item in request.items]


def _row(request: LockRequest) -> tuple[object, ...]:
    lease = request.lease_until
    if not request.is_granted and request.wait_until is not None:
        lease = min(lease, request.wait_until)
    return (request.id, request.namespace, request.owner, request.is_granted, lease, request, request.is_called)
