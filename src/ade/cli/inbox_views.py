"""Inboxes of conversations as tables and documents."""

from typing import Any

import msgspec

from ade.cli.output import Row
from ade.cli.times import distance, short_span
from ade.core.inbox.items import QueueItem
from ade.core.inbox.state import Inbox, InboxSummary
from ade.insight.reasons import moment

LIST_HEAD = ("inbox", "waiting", "taken", "oldest", "lease", "returns", "consumer")
ITEM_HEAD = ("item", "state", "kind", "source", "author", "put in", "agent", "conversation", "says")
_SHOWN = 60  # characters of what an item says


def summary_row(one: InboxSummary, now: int, steady: int) -> Row:
    return (
        one.id,
        str(one.waiting),
        str(one.taken or ""),
        "" if one.since is None else distance(one.since, now=now),
        lease_left(one.held_until, steady),
        str(one.returns or ""),
        one.consumer or "",
    )


def lease_left(until: int | None, steady: int) -> str:
    if until is None:
        return ""
    return short_span(until - steady) if until > steady else "over"


def summary_document(one: InboxSummary, steady: int) -> dict[str, Any]:
    return {
        "id": one.id,
        "waiting": one.waiting,
        "taken": one.taken,
        "consumer": one.consumer,
        "holder": one.holder,
        "lease_ms": None if one.held_until is None else max(one.held_until - steady, 0),
        "oldest_at": None if one.since is None else moment(one.since),
        "returns": one.returns,
        "written_at": moment(one.written_at),
    }


def item_row(found: Inbox, item: QueueItem, now: int) -> Row:
    said = item.text if item.content is None else item.content
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return (
        item.id,
        _state(found, item),
        item.kind,
        item.source,
        item.author or "",
        distance(item.enqueued_at, now=now),
        item.agent_id or "",
        item.conversation_id or "",
        text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…",
    )


def _state(found: Inbox, item: QueueItem) -> str:
    return "taken" if item in found.taken else "waiting"


def inbox_document(found: Inbox, steady: int) -> dict[str, Any]:
    lease = found.lease
    out = None
    if lease is not None:
        out = {"batch_id": lease.batch_id, "holder": lease.holder, "lease_ms": max(lease.until - steady, 0)}
    return {
        "id": found.id,
        "waiting": found.length,
        "taken": len(found.taken),
        "consumer": found.consumer,
        "batch": out,
        "blocked": found.told,
        "returns": found.returns,
        "memory": found.memory,
        "limits": msgspec.to_builtins(found.limits),
        "items": [_item_document(item) | {"state": _state(found, item)} for item in found.items],
    }


def _item_document(item: QueueItem) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(item)
    del fields["seq"]
    return {**fields, "source": item.source, "enqueued_at": moment(item.enqueued_at)}
