"""Document store on Redis: all documents are in the first partition, so that one call writes several atomically."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from ade.errors import NotConfirmed, StoreCorrupt
from ade.events.model import Event
from ade.stores.ports import RULES
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import as_text, packed_event, pairs
from ade.stores.redis.wakeups import RedisWakeups
from ade.stores.resource_ports import Document, DocumentWrite, stale

_PLACE = 0
_PATIENCE_S = 2.0  # of reads on a cluster, so that runs and producers of other partitions do not wait long
_decode = msgspec.msgpack.Decoder(tuple[int, int | bool, str]).decode


class RedisDocuments:
    """Versioned documents with optional expiry, and rate limits."""

    def __init__(self, link: RedisClient, wakeups: RedisWakeups) -> None:
        self._link = link
        self._wakeups = wakeups

    async def fetch(self, kind: str, ids: Sequence[str]) -> list[Document | None]:
        if not ids:
            return []
        now, found = await self._read("HMGET", kind, *ids)
        return [_standing(kind, each, packed, now) for each, packed in zip(ids, found, strict=True)]

    async def list_documents(self, kind: str) -> list[Document]:
        now, flat = await self._read("HGETALL", kind)
        found = (_standing(kind, each.decode(), packed, now) for each, packed in sorted(pairs(flat)))
        return [document for document in found if document is not None]

    async def write(self, writes: Sequence[DocumentWrite], events: Sequence[Event] = ()) -> None:
        if not writes and not events:
            return
        request = {
            "writes": [_packed(write) for write in writes],
            "events": [packed_event(event) for event in events],
            "notifies": (rings := not all(write.is_quiet for write in writes)),
            "token": new_token(),
        }
        unconfirmed: NotConfirmed | None = None
        try:
            refused: Any = await self._run("document_write", request, confirm=self._link.is_strong)
        except NotConfirmed as error:
            unconfirmed, refused = error, error.answer
        if refused:
            raise stale(writes[refused - 1])
        if rings:
            self._wakeups.published(RULES)
        if unconfirmed is not None:
            raise unconfirmed

    async def take_rate(self, key: str, count: int, period_ms: int, *, times: int = 1) -> int:
        request = {"key": key, "count": count, "period_ms": period_ms, "times": times, "token": new_token()}
        return int(await self._run("document_rate", request))

    async def expire_documents(self, limit: int) -> int:
        """Remove expired documents. The server itself expires rate limits."""
        return int(await self._run("document_expire", {"limit": limit}))

    async def _run(self, script: str, request: dict[str, Any], *, confirm: bool = False) -> Any:
        return await self._link.run(script, _PLACE, request, confirm=confirm)

    async def _read(self, command: str, kind: str, *words: str) -> tuple[int, Any]:
        """The current time, and the response of the server for documents of a kind."""
        key = f"{self._link.names[_PLACE].prefix}documents:{kind}"
        patience_s = None if self._link.partitions == 1 else _PATIENCE_S
        time, found = await self._link.ask(_PLACE, ("TIME",), (command, key, *words), patience_s=patience_s)
        return self._link.time_in(time), found


def _packed(write: DocumentWrite) -> list[Any]:
    body = write.body is not None and as_text(bytes(write.body))
    seen, expires_at = (False if each is None else each for each in (write.seen, write.expires_at))
    return [write.kind, write.id, body, seen, expires_at]


def _standing(kind: str, document_id: str, packed: bytes | None, now: int) -> Document | None:
    if packed is None:
        return None
    try:
        version, expires_at, body = _decode(packed)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"the {kind} {document_id!r} cannot be read ({error}); restore it from a backup") from error
    ends = None if expires_at is False else expires_at
    if ends is not None and ends <= now:
        return None
    return Document(kind=kind, id=document_id, body=Raw(body.encode()), version=version, expires_at=ends)
