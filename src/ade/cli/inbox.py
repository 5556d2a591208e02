"""`ade inbox`: what conversations have still to be told, and what a person may put in or take out."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ade.cli.output import Row
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import distance, short_span
from ade.core.inbox.errors import InboxFull, UnknownInbox, UnknownInboxItem
from ade.core.inbox.items import ItemKind, ItemSource, NewItem, QueueItem
from ade.core.inbox.notices import ClearReason
from ade.core.inbox.state import Inbox, InboxSummary
from ade.core.inbox.verbs import AlreadyThere
from ade.insight.reasons import moment
from ade.ports import Stores

if TYPE_CHECKING:
    from ade.agents.inboxes import DurableInbox

LIST_HEAD = ("inbox", "waiting", "taken", "oldest", "lease", "returns", "consumer")
ITEM_HEAD = ("item", "state", "kind", "source", "put in", "agent", "conversation", "says")
_SHOWN = 60  # characters of what an item says


@group("inbox", bare="list")
def inbox() -> None:
    """Inboxes of conversations: list, show, send, clear, remove. `ade inbox` alone lists them."""


@inbox.command("list")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="How many.")
@click.option("--after", default="", metavar="ID", help="Only those after this one.")
@pass_session
def list_inboxes(session: Session, limit: int, after: str) -> None:
    """List inboxes by id: how much waits in each, and who feeds on it."""
    session.look(_list(session, limit, after))


async def _list(session: Session, limit: int, after: str) -> None:
    async with session.stores() as stores:
        seen = await stores.inboxes.list_inboxes(after, limit)
        now, steady = stores.clock.now(), stores.clock.steady()
    if session.out.as_json:
        documents = [_summary_document(one, steady) for one in seen]
        session.out.document({"inboxes": documents, "next": seen[-1].id if len(seen) == limit else None})
        return
    session.out.table(LIST_HEAD, [_summary_row(one, now, steady) for one in seen])
    if not seen:
        session.out.note("No conversation has an inbox yet. `ade inbox send ID TEXT` puts something into one.")
    elif len(seen) == limit:
        session.out.note(f"There may be more: --after {seen[-1].id}")


def _summary_row(one: InboxSummary, now: int, steady: int) -> Row:
    return (
        one.id,
        str(one.waiting),
        str(one.taken or ""),
        "" if one.since is None else distance(one.since, now=now),
        _lease(one.held_until, steady),
        str(one.returns or ""),
        one.consumer or "",
    )


def _lease(until: int | None, steady: int) -> str:
    if until is None:
        return ""
    return short_span(until - steady) if until > steady else "over"


def _summary_document(one: InboxSummary, steady: int) -> dict[str, Any]:
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


@inbox.command("show")
@click.argument("inbox_id", metavar="ID")
@pass_session
def show(session: Session, inbox_id: str) -> None:
    """Show an inbox and all its items: first those that are taken, then those that wait, in their order."""
    session.look(_show(session, inbox_id))


async def _show(session: Session, inbox_id: str) -> None:
    async with session.stores() as stores:
        found = _known(await stores.inboxes.load(inbox_id))
        now, steady = stores.clock.now(), stores.clock.steady()
    if session.out.as_json:
        session.out.document(_document(found, steady))
        return
    if found.lease is not None:
        session.out.line(f"{found.lease.batch_id} is out: {found.lease.holder}, {_lease(found.lease.until, steady)}")
    if found.consumer is not None:
        session.out.line(f"consumer: {found.consumer}")
    session.out.table(ITEM_HEAD, [_item_row(found, item, now) for item in found.items], spare=("agent", "conversation"))
    if not found.items:
        session.out.note("Nothing waits in it.")


def _known(found: Inbox) -> Inbox:
    if found.version == 0:
        raise UnknownInbox(f"no inbox {found.id[:100]!r} exists; `ade inbox list` shows those that do")
    return found


def _item_row(found: Inbox, item: QueueItem, now: int) -> Row:
    said = item.text if item.content is None else item.content
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return (
        item.id,
        _state(found, item),
        item.kind,
        item.source,
        distance(item.enqueued_at, now=now),
        item.agent_id or "",
        item.conversation_id or "",
        text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…",
    )


def _state(found: Inbox, item: QueueItem) -> str:
    return "taken" if item in found.taken else "waiting"


def _document(found: Inbox, steady: int) -> dict[str, Any]:
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
        "items": [_item_document(item) | {"state": _state(found, item)} for item in found.items],
    }


def _item_document(item: QueueItem) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(item)
    del fields["seq"]
    return {**fields, "source": item.source, "enqueued_at": moment(item.enqueued_at)}


@inbox.command("send")
@click.argument("inbox_id", metavar="ID")
@click.argument("text")
@click.option(
    "--kind",
    type=click.Choice([str(kind) for kind in ItemKind]),
    default=str(ItemKind.MESSAGE),
    show_default=True,
    help="What it is.",
)
@click.option(
    "--source",
    type=click.Choice([str(source) for source in ItemSource]),
    default=str(ItemSource.USER),
    show_default=True,
    help="Where it comes from.",
)
@click.option("--agent-id", help="The agent it is for: items of another one are another turn.")
@click.option("--conversation-id", help="The same for the conversation.")
@click.option("--consumer", metavar="NAME", help="Who feeds on the inbox from now on, such as agent:coder.")
@click.option("--key", help="Put in once, however often it is sent under this key.")
@pass_session
def send(session: Session, /, inbox_id: str, text: str, consumer: str | None, **about: Any) -> None:
    """Put an item into an inbox, at its end."""
    session.run(_send(session, inbox_id, _new_item(text, **about), consumer))


def _new_item(text: str, *, kind: str, source: str, **about: str | None) -> NewItem:
    is_message = kind == ItemKind.MESSAGE
    said = {"content": text} if is_message else {"text": text}
    return NewItem(kind=ItemKind(kind), source=ItemSource(source), **said, **about)  # type: ignore[arg-type]  # by name


async def _send(session: Session, inbox_id: str, new: NewItem, consumer: str | None) -> None:
    from ade.agents.inboxes import DurableInbox  # loads asyncio, which looking can do without

    async with session.stores(must_exist=False) as stores:
        put = await DurableInbox(stores, inbox_id).enqueue(new, consumer=consumer)
    if put is None:
        raise InboxFull(f"the inbox {inbox_id} is full; `ade inbox show {inbox_id}` tells what waits in it")
    is_new = not isinstance(put, AlreadyThere)
    item_id = None if isinstance(put, AlreadyThere) else put.id
    if session.out.as_json:
        session.out.document({"inbox": inbox_id, "item": item_id, "is_new": is_new})
    else:
        session.out.line(f"{inbox_id}: {f'{item_id} put in' if is_new else f'{new.key} was put in before'}")


@inbox.command("clear")
@click.argument("inbox_id", metavar="ID")
@click.option(
    "--reason",
    type=click.Choice([str(reason) for reason in ClearReason]),
    required=True,
    help="Why, for those who are told.",
)
@pass_session
def clear(session: Session, inbox_id: str, reason: str) -> None:
    """Remove all that waits in an inbox. A batch that is taken stays with whoever has it."""
    session.run(_clear(session, inbox_id, ClearReason(reason)))


async def _clear(session: Session, inbox_id: str, reason: ClearReason) -> None:
    async with session.stores() as stores:
        gone = await (await _open(stores, inbox_id)).clear(reason)
    if session.out.as_json:
        session.out.document({"inbox": inbox_id, "cleared": [item.id for item in gone]})
    else:
        session.out.line(f"{inbox_id}: {len(gone)} {'item' if len(gone) == 1 else 'items'} removed")


async def _open(stores: Stores, inbox_id: str) -> "DurableInbox":
    from ade.agents.inboxes import DurableInbox

    _known(await stores.inboxes.load(inbox_id))
    return DurableInbox(stores, inbox_id)


@inbox.command("remove")
@click.argument("inbox_id", metavar="ID")
@click.argument("item_id", metavar="ITEM")
@pass_session
def remove(session: Session, inbox_id: str, item_id: str) -> None:
    """Take one item out of an inbox that waits there."""
    session.run(_remove(session, inbox_id, item_id))


async def _remove(session: Session, inbox_id: str, item_id: str) -> None:
    async with session.stores() as stores:
        removed = await (await _open(stores, inbox_id)).remove(item_id)
    if removed is None:
        raise UnknownInboxItem(
            f"no item {item_id[:100]!r} waits in the inbox {inbox_id}; `ade inbox show {inbox_id}` shows what does"
        )
    if session.out.as_json:
        session.out.document({"inbox": inbox_id, "removed": removed.id})
    else:
        session.out.line(f"{inbox_id}: {removed.id} removed")
