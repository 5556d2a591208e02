"""`ade inbox`: what conversations have still to be told, and what a person may put in or take out."""

from typing import TYPE_CHECKING, Any

import click

from ade.cli.identity import acting, as_option
from ade.cli.inbox_views import (
    ITEM_HEAD,
    LIST_HEAD,
    inbox_document,
    item_row,
    lease_left,
    summary_document,
    summary_row,
)
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.core.agent_runs.names import is_run, task_name
from ade.core.inbox.errors import InboxBusy, InboxFull, InvalidInboxItem, UnknownInbox, UnknownInboxItem
from ade.core.inbox.items import ItemKind, ItemSource, NewItem
from ade.core.inbox.notices import ClearReason
from ade.core.inbox.runtime import QueueCallbacks
from ade.core.inbox.state import Inbox
from ade.core.inbox.verbs import AlreadyThere
from ade.ports import Stores

if TYPE_CHECKING:
    from ade.agents.inboxes import DurableInbox


@group("inbox", bare="list")
def inbox() -> None:
    """Inboxes of conversations: list, show, send, clear, remove, reset. `ade inbox` alone lists them."""


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
        documents = [summary_document(one, steady) for one in seen]
        session.out.document({"inboxes": documents, "next": seen[-1].id if len(seen) == limit else None})
        return
    session.out.table(LIST_HEAD, [summary_row(one, now, steady) for one in seen])
    if not seen and after:
        session.out.note(f"No inbox comes after {after}.")
    elif not seen:
        session.out.note("No conversation has an inbox yet. `ade inbox send ID TEXT` puts something into one.")
    elif len(seen) == limit:
        session.out.note(f"There may be more: --after {seen[-1].id}")


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
        session.out.document(inbox_document(found, steady))
        return
    if found.lease is not None:
        session.out.line(
            f"{found.lease.batch_id} is out: {found.lease.holder}, {lease_left(found.lease.until, steady)}"
        )
    if found.consumer is not None:
        session.out.line(f"consumer: {found.consumer}")
    if found.told is not None:
        session.out.line(f"blocked: {found.told}")
    rows = [item_row(found, item, now) for item in found.items]
    session.out.table(ITEM_HEAD, rows, spare=("author", "agent", "conversation"))
    if not found.items:
        session.out.note("Nothing waits in it.")


def _known(found: Inbox) -> Inbox:
    if found.version == 0:
        raise UnknownInbox(f"no inbox {found.id[:100]!r} exists; `ade inbox list` shows those that do")
    return found


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
@as_option
@pass_session
def send(session: Session, /, inbox_id: str, text: str, consumer: str | None, **about: Any) -> None:
    """Put an item into an inbox, at its end. Whoever says it pays for what the agent does about it."""
    if not text.strip():
        raise InvalidInboxItem("there is nothing in the text; say something")
    session.run(_send(session, inbox_id, _new_item(text, author=acting(session), **about), consumer))


def _new_item(text: str, *, kind: str, source: str, **about: str | None) -> NewItem:
    is_message = kind == ItemKind.MESSAGE
    said = {"content": text} if is_message else {"text": text}
    return NewItem(kind=ItemKind(kind), source=ItemSource(source), **said, **about)  # type: ignore[arg-type]  # by name


async def _send(session: Session, inbox_id: str, new: NewItem, consumer: str | None) -> None:
    from ade.agents.inboxes import DurableInbox  # loads asyncio, which looking can do without

    dropped: list[str] = []
    callbacks = QueueCallbacks(on_dropped=lambda item, *_: dropped.append(item.id))
    async with session.stores(must_exist=False) as stores:
        put = await DurableInbox(stores, inbox_id, callbacks=callbacks).enqueue(new, consumer=consumer)
        is_fed = consumer is None or await _is_fed(stores, consumer)
    if put is None:
        raise InboxFull(f"the inbox {inbox_id} is full; `ade inbox show {inbox_id}` tells what waits in it")
    is_new = not isinstance(put, AlreadyThere)
    item_id = None if isinstance(put, AlreadyThere) else put.id
    if session.out.as_json:
        session.out.document({"inbox": inbox_id, "item": item_id, "is_new": is_new, "dropped": dropped})
    else:
        session.out.line(f"{inbox_id}: {f'{item_id} put in' if is_new else f'{new.key} was put in before'}")
    if dropped:
        session.out.note(f"The inbox is full: {', '.join(dropped)} gave way to it and is lost.")
    if not is_fed:
        session.out.note(_not_fed(str(consumer)))


async def _is_fed(stores: Stores, consumer: str) -> bool:
    steady = stores.clock.steady()
    workers = await stores.workers.list_workers()
    return any(consumer in worker.names and worker.heartbeat_until > steady for worker in workers)


def _not_fed(consumer: str) -> str:
    note = f"No live worker feeds {consumer}: what is sent waits until one does."
    return note if is_run(consumer) else f"{note} Agents are called {task_name('TYPE')}, such as {task_name('coder')}."


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

    _known(await stores.inboxes.outline(inbox_id))
    return DurableInbox(stores, inbox_id)


@inbox.command("reset")
@click.argument("inbox_id", metavar="ID")
@pass_session
def reset(session: Session, inbox_id: str) -> None:
    """Forget the session and all else that its consumer remembers: the next turn begins anew. No item is lost."""
    session.run(_reset(session, inbox_id))


async def _reset(session: Session, inbox_id: str) -> None:
    async with session.stores() as stores:
        is_done = await (await _open(stores, inbox_id)).reset()
    if not is_done:
        raise InboxBusy(
            f"a batch of the inbox {inbox_id} is out, and whoever has it writes what he remembers at its end; try"
            " again then, or cancel the task of the turn first"
        )
    if session.out.as_json:
        session.out.document({"inbox": inbox_id, "reset": True})
    else:
        session.out.line(f"{inbox_id}: the next turn begins anew")


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
