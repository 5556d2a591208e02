"""`ade inbox`: inspect conversation inboxes, send and remove items, and reset a conversation."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ade.agents.conversations.api import InboxRow, ItemView, NewInboxItem
from ade.agents.conversations.inbox import ClearReason
from ade.agents.conversations.model import InvalidInboxItem, ItemKind, ItemSource
from ade.cli.command import group
from ade.cli.identity import as_option
from ade.cli.output import Row, first_page
from ade.cli.parameters import distance, now_ms
from ade.tasks.identifiers import is_run, task_name
from ade.tasks.reasons import short_span

if TYPE_CHECKING:
    from ade.cli.session import Session


# Table rows.


LIST_HEAD = ("inbox", "waiting", "taken", "oldest", "lease", "returns", "consumer")
ITEM_HEAD = ("item", "state", "kind", "source", "author", "put in", "agent", "conversation", "says")
_SHOWN = 60  # characters of an item's text


def summary_row(one: InboxRow, now: int) -> Row:
    """Return the table row of an inbox."""
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
    """Return the remaining lease as text; empty without a lease."""
    if lease_ms is None:
        return ""
    return short_span(lease_ms) if lease_ms > 0 else "over"


def item_row(item: ItemView, now: int) -> Row:
    """Return the table row of an item."""
    said = item.text if item.content is None else item.content
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return (
        item.id,
        "taken" if item.is_taken else "waiting",
        item.kind,
        item.source,
        item.author or "",
        distance(item.enqueued_at, now=now),
        item.agent_id or "",
        item.conversation_id or "",
        text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…",
    )


@group("inbox", bare="list")
def inbox() -> None:
    """Inboxes of conversations: list, show, send, clear, remove, reset. `ade inbox` alone lists them."""


@inbox.command("list", reads=True)
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="How many.")
@click.option("--after", default="", metavar="ID", help="Only those after this one.")
async def list_inboxes(session: "Session", limit: int, after: str) -> None:
    """List inboxes by id, with the number of waiting items and the consumer of each."""
    async with session.api() as api:
        page = await first_page(api.list_inboxes, limit=limit, after=after)
    inboxes = page.items
    if session.out.as_json:
        session.out.document(page)
        return
    now = now_ms()
    session.out.table(LIST_HEAD, [summary_row(one, now) for one in inboxes])
    if not inboxes and after:
        session.out.note(f"No inbox comes after {after}.")
    elif not inboxes:
        session.out.note("No conversation has an inbox yet. `ade inbox send ID TEXT` creates one.")
    elif len(inboxes) == limit:
        session.out.note(f"There may be more: --after {inboxes[-1].id}")


@inbox.command("show", reads=True)
@click.argument("inbox_id", metavar="ID")
async def show(session: "Session", inbox_id: str) -> None:
    """Show an inbox and all its items: first those that are taken, then those that wait, in their order."""
    async with session.api() as api:
        found = await api.get_inbox(inbox_id)
    if session.out.as_json:
        session.out.document(found)
        return
    if found.batch is not None:
        session.out.line(f"{found.batch.batch_id} is out: {found.batch.holder}, {lease_left(found.batch.lease_ms)}")
    if found.consumer is not None:
        session.out.line(f"consumer: {found.consumer}")
    if found.blocked is not None:
        session.out.line(f"blocked: {found.blocked}")
    now = now_ms()
    rows = [item_row(item, now) for item in found.items]
    session.out.table(ITEM_HEAD, rows, spare=("author", "agent", "conversation"))
    if not found.items:
        session.out.note("Nothing waits in it.")


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
@click.option("--agent-id", help="The agent it is for: items for different agents are different turns.")
@click.option("--conversation-id", help="The same for the conversation.")
@click.option("--consumer", metavar="NAME", help="The consumer of the inbox from now on, such as agent:coder.")
@click.option("--key", help="Idempotency key: sent again with the same key, the item is added once.")
@as_option
async def send(session: "Session", /, inbox_id: str, text: str, consumer: str | None, **about: Any) -> None:
    """Add an item to the end of an inbox. The sender pays for what the agent does with it."""
    if not text.strip():
        raise InvalidInboxItem("the text is empty")
    new = _new_item(text, **about)
    async with session.api(must_exist=False) as api:
        put = await api.put_inbox_items(inbox_id, items=[new], consumer=consumer)
    [item] = put.items
    if session.out.as_json:
        session.out.document(put)
    else:
        session.out.line(f"{inbox_id}: {f'{item.item_id} added' if item.is_new else f'{new.key} was put in before'}")
    if put.dropped:
        session.out.note(f"The inbox is full: {', '.join(put.dropped)} dropped to make room.")
    if not put.is_fed:
        session.out.note(_not_fed(str(consumer)))


def _new_item(text: str, *, kind: str, source: str, **about: str | None) -> NewInboxItem:
    said = {"content" if kind == ItemKind.MESSAGE else "text": text}
    return NewInboxItem(kind=ItemKind(kind), source=ItemSource(source), **said, **about)  # type: ignore[arg-type]  # by name


def _not_fed(consumer: str) -> str:
    note = f"No running worker consumes for {consumer}: items wait until one does."
    return note if is_run(consumer) else f"{note} Agents are called {task_name('TYPE')}, such as {task_name('coder')}."


@inbox.command("clear")
@click.argument("inbox_id", metavar="ID")
@click.option(
    "--reason",
    type=click.Choice([str(reason) for reason in ClearReason]),
    required=True,
    help="The reason, shown to the senders.",
)
async def clear(session: "Session", inbox_id: str, reason: str) -> None:
    """Remove all waiting items from an inbox. A batch in progress stays with its consumer."""
    async with session.api() as api:
        cleared = await api.clear_inbox(inbox_id, reason=ClearReason(reason))
    if session.out.as_json:
        session.out.document(cleared)
    else:
        gone = cleared.cleared
        session.out.line(f"{inbox_id}: {len(gone)} {'item' if len(gone) == 1 else 'items'} removed")


@inbox.command("reset")
@click.argument("inbox_id", metavar="ID")
async def reset(session: "Session", inbox_id: str) -> None:
    """Clear the session and all memory of the consumer: the next turn starts from scratch. No item is lost."""
    async with session.api() as api:
        await api.reset_inbox(inbox_id)
    if session.out.as_json:
        session.out.document({"inbox": inbox_id, "reset": True})
    else:
        session.out.line(f"{inbox_id}: the next turn starts from scratch")


@inbox.command("remove")
@click.argument("inbox_id", metavar="ID")
@click.argument("item_id", metavar="ITEM")
async def remove(session: "Session", inbox_id: str, item_id: str) -> None:
    """Remove one waiting item from an inbox."""
    async with session.api() as api:
        await api.remove_inbox_item(inbox_id, item_id)
    if session.out.as_json:
        session.out.document({"inbox": inbox_id, "removed": item_id})
    else:
        session.out.line(f"{inbox_id}: {item_id} removed")
