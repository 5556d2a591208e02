"""HTTP operations on conversation inboxes: list, read, send, remove, clear, and reset."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, structs

from ade.accounts.model import Permission
from ade.agents.conversations.inbox import BlockedReason, ClearReason, Inbox, InboxSummary
from ade.agents.conversations.memory_inbox import QueueCallbacks
from ade.agents.conversations.model import (
    InboxBusy,
    InboxFull,
    InboxLimits,
    InvalidInboxItem,
    ItemKind,
    ItemSource,
    NewItem,
    StoredItem,
    UnknownInbox,
    UnknownInboxItem,
)
from ade.agents.conversations.rules import DuplicateItem
from ade.errors import InvalidInbox, NotPermitted
from ade.server.context import RequestContext, Services, page, position, scope_of
from ade.server.operation import ETagUse, ReadRule, operation
from ade.server.pagination import Page
from ade.server.request_types import Form, InboxName, PageSize
from ade.tasks.identifiers import check_inbox_id, is_run
from ade.worker.views import is_fed

if TYPE_CHECKING:
    from ade.agents.conversations.durable_inbox import DurableInbox

# Responses. The lease ID is known only to its holder, and is never returned.


class InboxRow(Struct, frozen=True, kw_only=True):
    """An inbox in a list."""

    id: str
    waiting: int  # items not taken
    taken: int  # items of the leased batch
    returns: int
    written_at: int
    consumer: str | None = None
    holder: str | None = None  # of the leased batch
    lease_ms: int | None = None  # remaining lease time; 0: the batch counts as returned
    oldest_at: int | None = None


class LeasedBatch(Struct, frozen=True, kw_only=True):
    """Items that a consumer has taken and must acknowledge before the lease expires."""

    batch_id: str
    holder: str
    lease_ms: int  # remaining lease time; 0: the batch counts as returned


class ItemView(StoredItem, frozen=True, kw_only=True, omit_defaults=True):
    """An inbox item, and whether a consumer has taken it."""

    is_taken: bool = False


class InboxView(Struct, frozen=True, kw_only=True):
    """The state of an inbox: its items, its consumer, and the batch in progress."""

    id: str
    version: int
    waiting: int
    taken: int
    returns: int
    items: tuple[ItemView, ...]
    consumer: str | None = None
    batch: LeasedBatch | None = None
    blocked: BlockedReason | None = None
    memory: dict[str, Any] = {}
    limits: InboxLimits | None = None  # None: the defaults


class PutItem(Struct, frozen=True, kw_only=True):
    """The result for one item: its ID, and whether it is new."""

    is_new: bool  # False: an item with this key was put in before
    item_id: str | None = None
    key: str | None = None


class PutItems(Struct, frozen=True, kw_only=True):
    """The result of adding items to an inbox."""

    inbox_id: str
    items: list[PutItem]  # in the order sent
    is_fed: bool  # whether a live worker serves its consumer, if it has one
    dropped: list[str] = []  # old items that were evicted and are lost


class ClearedItems(Struct, frozen=True, kw_only=True):
    """The items that were removed from an inbox."""

    inbox_id: str
    cleared: list[str]


def line_of(one: InboxSummary, steady: int) -> InboxRow:
    """Return the row of an inbox for a list; `steady` is the current steady time."""
    return InboxRow(
        id=one.id,
        waiting=one.waiting,
        taken=one.taken,
        returns=one.returns,
        written_at=one.written_at,
        consumer=one.consumer,
        holder=one.holder,
        lease_ms=None if one.held_until is None else max(one.held_until - steady, 0),
        oldest_at=one.since,
    )


def view(found: Inbox, steady: int) -> InboxView:
    """Return an inbox with its items; `steady` is the current steady time."""
    lease, taken = found.lease, len(found.taken)
    out = None
    if lease is not None:
        out = LeasedBatch(batch_id=lease.batch_id, holder=lease.holder, lease_ms=max(lease.until - steady, 0))
    return InboxView(
        id=found.id,
        version=found.version,
        waiting=found.length,
        taken=taken,
        returns=found.returns,
        items=tuple(_item(item, place < taken) for place, item in enumerate(found.items)),
        consumer=found.consumer,
        batch=out,
        blocked=found.told,
        memory=found.memory,
        limits=found.limits,
    )


def _item(item: StoredItem, is_taken: bool) -> ItemView:
    fields = {name: getattr(item, name) for name in NewItem.__struct_fields__}
    return ItemView(id=item.id, seq=item.seq, enqueued_at=item.enqueued_at, is_taken=is_taken, **fields)


# Request types.


Text = Annotated[str, Meta(max_length=200)]


class ListInboxes(Form):
    """Query parameters of `GET /inboxes`."""

    after: Text = ""  # only IDs that sort after this one
    cursor: str | None = None
    limit: PageSize = 50


class NewInboxItem(Form):
    """A message has `content`, every other kind has `text`. Whoever sends it pays for what the agent does about it."""

    kind: ItemKind = ItemKind.MESSAGE
    source: ItemSource = ItemSource.USER
    content: str | list[dict[str, Any]] | None = None
    text: str | None = None
    client_message_id: Text | None = None
    agent_id: Text | None = None
    conversation_id: Text | None = None
    cron_task_id: Text | None = None
    no_coalesce: bool = False
    key: Text | None = None  # deduplicates items sent more than once


class PutInboxItems(Form):
    """All or none of them, at the end, in their order."""

    items: Annotated[list[NewInboxItem], Meta(min_length=1, max_length=100)]
    consumer: Annotated[InboxName, Meta(max_length=200)] | None = (
        None  # processes the inbox from now on, such as agent:coder
    )


class ClearInbox(Form):
    """Why the items of an inbox are removed."""

    reason: ClearReason


_SAID = frozenset({ItemKind.MESSAGE, ItemKind.MOD_CONTINUE, ItemKind.OVERLAY_ACTION})
_SPEAKERS = frozenset({ItemSource.USER, ItemSource.SUBAGENT})
_MOST_EXAMINED, _PORTION = 2_000, 200  # inboxes, for one page of a limited account
_TASK_KEYS = "task:"  # prefix of keys that deduplicate task notifications


@operation("GET /inboxes", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_inboxes(services: Services, request: RequestContext, query: ListInboxes) -> Page[InboxRow]:
    """Conversations, and what they have still to be told."""
    after = position("inboxes", query)
    begin = after if isinstance(after, str) else query.after
    steady = services.stores.clock.steady()
    found = await services.stores.inboxes.list_inboxes(begin, query.limit + 1)
    if (scope := scope_of(request.caller)) is not None:
        return await _own_inboxes(services, query, found, scope.account)
    lines = [line_of(one, steady) for one in found[: query.limit]]
    return page("inboxes", query, lines, lines[-1].id if len(found) > query.limit else None)


async def _own_inboxes(
    services: Services, query: ListInboxes, found: Sequence[InboxSummary], account: str
) -> Page[InboxRow]:
    """Return the conversations that an account began. A page can be partial, if those of others are many."""
    steady, own, examined = services.stores.clock.steady(), list[InboxRow](), 0
    while found:
        for one in found:
            own += [line_of(one, steady)] if one.owner == account else []
            examined += 1
            if len(own) == query.limit or examined == _MOST_EXAMINED:
                return page("inboxes", query, own, one.id, is_partial=len(own) < query.limit)
        found = await services.stores.inboxes.list_inboxes(found[-1].id, _PORTION)
    return page("inboxes", query, own, None)


@operation("GET /inboxes/{inbox_id}", reads=ReadRule.SCOPED, permission=Permission.READ, tag=ETagUse.ANSWERED)
async def get_inbox(services: Services, request: RequestContext, inbox_id: str) -> InboxView:
    """One conversation's inbox."""
    _check_id(inbox_id)
    found = _known(await services.stores.inboxes.load(inbox_id))
    if (scope := scope_of(request.caller)) is not None and found.owner != scope.account:
        raise _unknown(inbox_id)
    return view(found, services.stores.clock.steady())


@operation("POST /inboxes/{inbox_id}/items", permission=Permission.ENQUEUE)
async def put_inbox_items(services: Services, request: RequestContext, inbox_id: str, body: PutInboxItems) -> PutItems:
    """Tell a conversation something. Over HTTP, a caller without the permission to operate can only send what people
    and agents say (messages, actions and continuations of a turn), not notifications in the name of ADE. Such a caller
    binds an inbox only to an agent, and only while it is empty and has no consumer. Programs of this kind speak as the
    user only in conversations that they began. Raises InboxFull, with no item stored, and NotPermitted."""
    dropped: list[str] = []
    inbox = _inbox(services, inbox_id, QueueCallbacks(on_dropped=lambda item, *_: dropped.append(item.id)))
    news = [_new_item(request, form) for form in body.items]
    put = await inbox.enqueue_all(news, consumer=body.consumer, check=partial(_check_put, request, body))
    if put is None:
        raise InboxFull(f"the inbox {inbox_id} is full", advice=f"`ade inbox show {inbox_id}` shows what waits in it")
    has_feeder = body.consumer is None or await is_fed(services.stores, body.consumer)
    items = [
        PutItem(is_new=False, key=one.key)
        if isinstance(one, DuplicateItem)
        else PutItem(is_new=True, item_id=one.id, key=one.key)
        for one in put
    ]
    return PutItems(inbox_id=inbox_id, items=items, is_fed=has_feeder, dropped=dropped)


def _inbox(services: Services, inbox_id: str, callbacks: QueueCallbacks | None = None) -> "DurableInbox":
    from ade.agents.conversations.durable_inbox import DurableInbox  # imports asyncio, which reads do not need

    return DurableInbox(services.stores, inbox_id, callbacks=callbacks)


def _new_item(request: RequestContext, form: NewInboxItem) -> NewItem:
    said = form.text if form.content is None else form.content
    if not said or (isinstance(said, str) and not said.strip()):
        raise InvalidInboxItem("the text is empty")
    is_said = form.kind in _SAID and form.source in _SPEAKERS
    if not is_said or (form.key is not None and form.key.startswith(_TASK_KEYS)):
        request.require(Permission.OPERATE)
    return NewItem(**structs.asdict(form), author=request.author)


def _check_put(request: RequestContext, body: PutInboxItems, inbox: Inbox) -> None:
    """Check what a caller without the permission to operate does in a conversation. Raises NotPermitted."""
    _check_binding(request, body.consumer, inbox)
    caller = request.caller
    if caller is None or caller.user.is_human or Permission.OPERATE in caller.permissions:
        return
    is_own = inbox.owner == caller.user.id if inbox.last_item else True
    if not is_own and any(item.source is ItemSource.USER for item in body.items):
        raise NotPermitted(
            f"the conversation {inbox.id} was not begun by {caller.user.id}, so {caller.user.id} cannot speak as its"
            " user there; send the item with the source subagent, or begin another conversation"
        )


def _check_binding(request: RequestContext, consumer: str | None, inbox: Inbox) -> None:
    """Require more permission to bind a consumer than to send an item.

    A new consumer erases what the previous one remembers, and the first one receives what others have sent.
    """
    if consumer is None or inbox.consumer == consumer:
        return
    is_begun = inbox.consumer is not None or bool(inbox.items)
    if is_begun or not is_run(consumer):
        request.require(Permission.OPERATE)


@operation("DELETE /inboxes/{inbox_id}/items/{item_id}", permission=Permission.OPERATE)
async def remove_inbox_item(services: Services, request: RequestContext, inbox_id: str, item_id: str) -> None:
    """Take an item out."""
    await _check_known(services, inbox_id)
    if await _inbox(services, inbox_id).remove(item_id) is None:
        raise UnknownInboxItem(
            f"no item {item_id[:100]!r} waits in the inbox {inbox_id}",
            advice=f"`ade inbox show {inbox_id}` shows what does",
        )


@operation("POST /inboxes/{inbox_id}/clear", permission=Permission.OPERATE, tag=ETagUse.HEEDED)
async def clear_inbox(services: Services, request: RequestContext, inbox_id: str, body: ClearInbox) -> ClearedItems:
    """Empty an inbox. With If-Match, only what was seen is removed. A batch in progress stays with its consumer."""
    await _check_known(services, inbox_id)
    gone = await _inbox(services, inbox_id).clear(body.reason, check=lambda inbox: request.check_version(inbox.version))
    return ClearedItems(inbox_id=inbox_id, cleared=[item.id for item in gone])


@operation("POST /inboxes/{inbox_id}/reset", permission=Permission.OPERATE)
async def reset_inbox(services: Services, request: RequestContext, inbox_id: str) -> None:
    """Forget what its consumer remembers. The next turn starts from scratch; no item is lost. Raises InboxBusy while a
    batch is in progress."""
    await _check_known(services, inbox_id)
    if not await _inbox(services, inbox_id).reset():
        raise InboxBusy(
            f"a batch of the inbox {inbox_id} is in progress, and its consumer stores its memory at the end; try"
            " again then, or cancel the task of the turn first"
        )


async def _check_known(services: Services, inbox_id: str) -> None:
    _check_id(inbox_id)
    _known(await services.stores.inboxes.load(inbox_id, outline=True))


def _check_id(inbox_id: str) -> None:
    """Reject an invalid inbox ID before the store is queried."""
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
