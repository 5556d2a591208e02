"""Inbox store on Redis: an inbox and all its items are in one partition."""

import asyncio
import heapq
from typing import Any

import msgspec
from msgspec import structs

from ade.agents.conversations.inbox import (
    Inbox,
    InboxChange,
    InboxSummary,
    events_of,
    outlined,
    stale,
    summary_of,
    unreadable,
    unused,
)
from ade.agents.conversations.model import ItemSource, StoredItem
from ade.errors import NotConfirmed
from ade.stores.ports import INBOX
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import as_text, packed_event, pairs
from ade.stores.redis.partitions import partition_of_key
from ade.stores.redis.wakeups import RedisWakeups

_head = msgspec.json.Decoder(Inbox).decode
_item = msgspec.json.Decoder(StoredItem).decode
_stands = msgspec.msgpack.Decoder(tuple[int, str | bool, int, int | bool, int | bool, int]).decode
_encode = msgspec.json.Encoder().encode


class RedisInboxes:
    """Inboxes of conversations: items, batch leases, and summaries."""

    def __init__(self, link: RedisClient, wakeups: RedisWakeups) -> None:
        self._link = link
        self._wakeups = wakeups

    async def load(self, inbox_id: str, *, outline: bool = False) -> Inbox:
        empty, place = unused(inbox_id), self._partition(inbox_id)
        [flat] = await self._link.ask(place, ("HGETALL", f"{self._link.names[place].prefix}inbox:record:{inbox_id}"))
        fields = dict(pairs(flat))
        if not fields:
            return empty
        try:
            head = _head(fields.pop(b"head"))
            fields.pop(b"stands")
            if outline:
                return outlined(head, sorted(map(int, fields)))
            return structs.replace(head, items=tuple(_item(fields[seq]) for seq in sorted(fields, key=int)))
        except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
            raise unreadable(inbox_id, error) from error

    async def write(self, change: InboxChange[Any], write_id: str | None = None) -> None:
        if not change.is_written:
            return
        is_new_work = any(item.source is ItemSource.USER for item in change.added)
        script, place = "inbox_admit" if is_new_work else "inbox_write", self._partition(change.after.id)
        request = {**_packed(change, self._link.clock.now()), "token": write_id or new_token()}
        unconfirmed: NotConfirmed | None = None
        try:
            refused: Any = await self._link.run(script, place, request, confirm=self._link.is_strong)
        except NotConfirmed as error:
            unconfirmed, refused = error, error.answer
        if refused:
            raise stale(change)
        self._wakeups.published(INBOX)
        if unconfirmed is not None:
            raise unconfirmed

    async def ready(self, consumers: frozenset[str], limit: int) -> list[str]:
        if not consumers or limit <= 0:
            return []
        answers = await self._ask_near("inbox_ready", {"consumers": sorted(consumers), "limit": limit})
        found = ((int(since), inbox_id.decode()) for flat in answers for inbox_id, since in pairs(flat))
        return [inbox_id for _, inbox_id in heapq.nsmallest(limit, found)]

    async def list_inboxes(self, after: str, limit: int) -> list[InboxSummary]:
        answers = await self._ask_all("inbox_list", {"after": after, "limit": limit})
        found = [_summary(head, stands) for answer in answers for head, stands in answer]
        return heapq.nsmallest(limit, found, key=lambda summary: summary.id)

    async def forget_empty(self, before_ms: int, limit: int) -> int:
        return sum(map(int, await self._ask_near("inbox_forget", {"before": before_ms, "limit": limit})))

    async def _ask_all(self, script: str, request: dict[str, Any]) -> list[Any]:
        places = range(self._link.partitions)
        return await asyncio.gather(*(self._link.run(script, place, request) for place in places))

    async def _ask_near(self, script: str, request: dict[str, Any]) -> list[Any]:
        """Ask the partitions that respond: the inboxes of the others wait until they do."""
        answers = await self._link.reach.each(
            range(self._link.partitions),
            lambda place, patience_s: self._link.run(script, place, request, patience_s=patience_s),
        )
        return list(answers.values())

    def _partition(self, inbox_id: str) -> int:
        return partition_of_key(inbox_id, self._link.partitions)


def _packed(change: InboxChange[Any], now: int) -> dict[str, Any]:
    after = change.after
    since = after.items[0].enqueued_at if after.items else False
    held = False if after.lease is None else after.lease.until
    return {
        "id": after.id,
        "seen": change.before.version,
        "summary": [after.version, after.consumer or False, len(after.items), since, held],
        "head": as_text(_encode(structs.replace(after, items=()))),
        "added": [[item.seq, as_text(_encode(item))] for item in change.added],
        "removed": [item.seq for item in change.removed],
        "events": [packed_event(event) for event in events_of(after.id, change.notices, at=now)],
    }


def _summary(head: bytes | None, packed: bytes | None) -> InboxSummary:
    try:
        _, _, items, since, _, written_at = _stands(packed or b"")
        return summary_of(
            _head(head or b""), items=items, since=None if since is False else since, written_at=written_at
        )
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unreadable("of the list", error) from error
