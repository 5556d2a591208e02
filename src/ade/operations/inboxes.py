"""Inboxes of conversations: what they have still to be told, and what somebody puts in or takes out."""

from functools import partial

from msgspec import structs

from ade.core.accounts.permissions import Permission
from ade.core.agent_runs.names import is_run
from ade.core.inbox.errors import InboxBusy, InboxFull, InvalidInbox, InvalidInboxItem, UnknownInbox, UnknownInboxItem
from ade.core.inbox.items import ItemKind, ItemSource, NewItem
from ade.core.inbox.names import check_inbox_id
from ade.core.inbox.runtime import QueueCallbacks
from ade.core.inbox.state import Inbox
from ade.core.inbox.verbs import AlreadyThere
from ade.core.web.forms.inboxes import ClearInbox, ListInboxes, NewInboxItem, PutInboxItems
from ade.insight.inboxes import Cleared, InboxLine, InboxView, PutItem, PutItems, line_of, view
from ade.insight.workers import is_fed
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import page, position

_SAID = frozenset({ItemKind.MESSAGE, ItemKind.MOD_CONTINUE, ItemKind.OVERLAY_ACTION})
_SPEAKERS = frozenset({ItemSource.USER, ItemSource.SUBAGENT})
_TASK_KEYS = "task:"  # under such a key the end of a task is told once


async def list_inboxes(office: Office, asked: Asked, query: ListInboxes) -> Page[InboxLine]:
    after = position("inboxes", query)
    begin = after if isinstance(after, str) else query.after
    steady = office.stores.clock.steady()
    found = await office.stores.inboxes.list_inboxes(begin, query.limit + 1)
    lines = [line_of(one, steady) for one in found[: query.limit]]
    return page("inboxes", query, lines, lines[-1].id if len(found) > query.limit else None)


async def get_inbox(office: Office, asked: Asked, inbox_id: str) -> InboxView:
    _check_id(inbox_id)
    found = _known(await office.stores.inboxes.load(inbox_id))
    return view(found, office.stores.clock.steady())


async def put_inbox_items(office: Office, asked: Asked, inbox_id: str, body: PutInboxItems) -> PutItems:
    """Over HTTP, who may not operate says what people and agents say: messages, actions and what goes on after a turn,
    not in the name of ADE itself, which tells of tasks, approvals and schedules. He binds an inbox only while it is
    empty and nobody's, and only to an agent.

    Raises InboxFull, with none of them put in, and NotPermitted.
    """
    from ade.agents.inboxes import DurableInbox  # loads asyncio, which looking can do without

    dropped: list[str] = []
    callbacks = QueueCallbacks(on_dropped=lambda item, *_: dropped.append(item.id))
    inbox = DurableInbox(office.stores, inbox_id, callbacks=callbacks)
    news = [_new_item(asked, form) for form in body.items]
    put = await inbox.enqueue_all(news, consumer=body.consumer, check=partial(_check_binding, asked, body.consumer))
    if put is None:
        raise InboxFull(f"the inbox {inbox_id} is full", advice=f"`ade inbox show {inbox_id}` tells what waits in it")
    has_feeder = body.consumer is None or await is_fed(office.stores, body.consumer)
    items = [
        PutItem(is_new=False, key=one.key) if isinstance(one, AlreadyThere) else _put(one.id, one.key) for one in put
    ]
    return PutItems(inbox_id=inbox_id, items=items, is_fed=has_feeder, dropped=dropped)


def _put(item_id: str, key: str | None) -> PutItem:
    return PutItem(is_new=True, item_id=item_id, key=key)


def _new_item(asked: Asked, form: NewInboxItem) -> NewItem:
    said = form.text if form.content is None else form.content
    if not said or (isinstance(said, str) and not said.strip()):
        raise InvalidInboxItem("there is nothing in the text; say something")
    is_said = form.kind in _SAID and form.source in _SPEAKERS
    if not is_said or (form.key is not None and form.key.startswith(_TASK_KEYS)):
        asked.require(Permission.OPERATE)
    return NewItem(**structs.asdict(form), author=asked.author)


def _check_binding(asked: Asked, consumer: str | None, inbox: Inbox) -> None:
    """Another consumer in its place forgets what this one remembers, and the first one is fed with what others have
    said, which takes more than to say something."""
    if consumer is None or inbox.consumer == consumer:
        return
    is_begun = inbox.consumer is not None or bool(inbox.items)
    if is_begun or not is_run(consumer):
        asked.require(Permission.OPERATE)


async def remove_inbox_item(office: Office, asked: Asked, inbox_id: str, item_id: str) -> None:
    from ade.agents.inboxes import DurableInbox

    await _check_known(office, inbox_id)
    if await DurableInbox(office.stores, inbox_id).remove(item_id) is None:
        raise UnknownInboxItem(
            f"no item {item_id[:100]!r} waits in the inbox {inbox_id}",
            advice=f"`ade inbox show {inbox_id}` shows what does",
        )


async def clear_inbox(office: Office, asked: Asked, inbox_id: str, body: ClearInbox) -> Cleared:
    """With If-Match only what was seen is removed. A batch that is out stays with whoever has it."""
    from ade.agents.inboxes import DurableInbox

    await _check_known(office, inbox_id)

    def check(inbox: Inbox) -> None:
        asked.check_version(inbox.version)

    gone = await DurableInbox(office.stores, inbox_id).clear(body.reason, check=check)
    return Cleared(inbox_id=inbox_id, cleared=[item.id for item in gone])


async def reset_inbox(office: Office, asked: Asked, inbox_id: str) -> None:
    """The next turn begins anew; no item is lost. Raises InboxBusy while a batch is out."""
    from ade.agents.inboxes import DurableInbox

    await _check_known(office, inbox_id)
    if not await DurableInbox(office.stores, inbox_id).reset():
        raise InboxBusy(
            f"a batch of the inbox {inbox_id} is out, and whoever has it writes what he remembers at its end; try"
            " again then, or cancel the task of the turn first"
        )


async def _check_known(office: Office, inbox_id: str) -> None:
    _check_id(inbox_id)
    _known(await office.stores.inboxes.outline(inbox_id))


def _check_id(inbox_id: str) -> None:
    """What is no id is not looked for."""
    try:
        check_inbox_id(inbox_id)
    except InvalidInbox:
        raise _unknown(inbox_id) from None


def _known(found: Inbox) -> Inbox:
    if found.version == 0:
        raise _unknown(found.id)
    return found


def _unknown(inbox_id: str) -> UnknownInbox:
    return UnknownInbox(f"no inbox {inbox_id[:100]!r} exists", advice="`ade inbox list` shows those that do")
