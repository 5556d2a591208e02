"""Inboxes of conversations as tables and documents."""

from typing import Any

import msgspec

from ade.cli.output import Row
from ade.cli.times import distance, short_span
from ade.insight.inboxes import InboxLine, InboxView, ItemView
from ade.insight.reasons import moment

LIST_HEAD = ("inbox", "waiting", "taken", "oldest", "lease", "returns", "consumer")
ITEM_HEAD = ("item", "state", "kind", "source", "author", "put in", "agent", "conversation", "says")
_SHOWN = 60  # characters of what an item says


def summary_row(one: InboxLine, now: int) -> Row:
    return (
        one.id,
        str(one.waiting),
        str(one.taken or ""),
        "" if one.oldest_at is None else distance(one.oldest_at, now=now),
        lease_left(one.lease_ms),
        str(one.returns or ""),
        one.consumer or "",
    )


def lease_left(lease_ms: int | None) -> str:
    if lease_ms is None:
        return ""
    return short_span(lease_ms) if lease_ms > 0 else "over"


def summary_document(one: InboxLine) -> dict[str, Any]:
    return {
        "id": one.id,
        "waiting": one.waiting,
        "taken": one.taken,
        "consumer": one.consumer,
        "holder": one.holder,
        "lease_ms": one.lease_ms,
        "oldest_at": None if one.oldest_at is None else moment(one.oldest_at),
        "returns": one.returns,
        "written_at": moment(one.written_at),
    }


def item_row(item: ItemView, now: int) -> Row:
    said = item.text if item.content is None else item.content
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return (
        item.id,
        _state(item),
        item.kind,
        item.source,
        item.author or "",
        distance(item.enqueued_at, now=now),
        item.agent_id or "",
        item.conversation_id or "",
        text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…",
    )


def _state(item: ItemView) -> str:
    return "taken" if item.is_taken else "waiting"


def inbox_document(found: InboxView) -> dict[str, Any]:
    return {
        "id": found.id,
        "waiting": found.waiting,
        "taken": found.taken,
        "consumer": found.consumer,
        "batch": found.batch,
        "blocked": found.blocked,
        "returns": found.returns,
        "memory": found.memory,
        "limits": msgspec.to_builtins(found.limits),
        "items": [_item_document(item) | {"state": _state(item)} for item in found.items],
    }


def _item_document(item: ItemView) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(item)
    del fields["seq"]
    fields.pop("is_taken", None)
    return {**fields, "source": item.source, "enqueued_at": moment(item.enqueued_at)}
