"""Inbox items and batches, their limits and validation, and the errors of inboxes."""

import math
from collections.abc import Sequence
from enum import StrEnum, auto
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import Struct

from ade.errors import AdeError, InvalidInbox

# Capacity of an inbox. At the soft limit new items evict old ones; at the hard limit they are rejected.


DEFAULT_MAX_ITEMS = 100
HARD_FACTOR = 3  # default ratio of the hard limit to the soft limit
MOST_ITEMS = 1_000_000_000


class InboxLimits(Struct, frozen=True, kw_only=True):
    """The soft and the hard limit on the number of items in an inbox."""

    max_items: int = DEFAULT_MAX_ITEMS
    hard_max_items: int = DEFAULT_MAX_ITEMS * HARD_FACTOR


def inbox_limits(max_items: float | None = None, hard_max_items: float | None = None) -> InboxLimits:
    """Return valid limits for any input: a value that is not a number, or less than 1, counts as missing.

    Fractions are truncated, and the hard limit is never below the soft one.
    """
    soft = _whole(max_items, DEFAULT_MAX_ITEMS)
    return InboxLimits(max_items=soft, hard_max_items=max(soft, _whole(hard_max_items, soft * HARD_FACTOR)))


def _whole(number: float | None, default: int) -> int:
    if not isinstance(number, int | float) or math.isnan(number) or number < 1:
        return default
    return math.floor(min(number, MOST_ITEMS))


# Errors.


class InvalidInboxItem(AdeError):
    """The item is not one that an inbox can hold. Nothing was stored; correct it and try again."""

    code = "invalid_inbox_item"


class UnknownInbox(AdeError):
    """No inbox with this id exists, or it has expired."""

    code = "unknown_inbox"


class UnknownInboxItem(AdeError):
    """No such item waits in the inbox: it was taken, removed, or cleared, or never existed."""

    code = "unknown_inbox_item"


class InboxBusy(AdeError):
    """A batch of the inbox is in progress, and its consumer would overwrite this. Nothing was stored."""

    code = "inbox_busy"


class InboxFull(AdeError):
    """The inbox is full until its consumer has taken some items. Nothing was stored."""

    code = "inbox_full"


# Nesting depth of JSON in an inbox.


DEEPEST = 100  # deeper values could overflow a reader's stack, and make the inbox unreadable


def is_too_deep(value: object) -> bool:
    """Return whether small, finite, plain JSON is nested too deeply."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


class ItemKind(StrEnum):
    """What an inbox item contains."""

    MESSAGE = auto()
    TASK_NOTIFICATION = auto()
    CRON_PROMPT = auto()
    MOD_CONTINUE = auto()  # added by an extension of the agent after a turn, to make it continue
    APPROVAL_RESULT = auto()
    OVERLAY_ACTION = auto()


KINDS = frozenset(ItemKind)
COALESCABLE = frozenset(
    {ItemKind.MESSAGE, ItemKind.TASK_NOTIFICATION, ItemKind.CRON_PROMPT, ItemKind.MOD_CONTINUE},
)
BARRIERS = KINDS - COALESCABLE  # form a batch alone, and nothing is merged across them


class ItemSource(StrEnum):
    """Where an inbox item comes from."""

    USER = auto()
    TASK_NOTIFICATION = auto()
    SUBAGENT = auto()
    SYSTEM = auto()


LARGEST_ITEM = 256_000  # bytes of JSON
LONGEST_KEY = 200
LONGEST_AUTHOR = 200

Part = dict[str, Any]  # of a message: {"type": "text", "text": ...}, an image, or any other part the agent accepts
Content = str | list[Part]
Scope = tuple[str | None, str | None]  # agent, conversation


class NewItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item to put in. A message has `content`, every other kind has `text`."""

    kind: ItemKind
    source: ItemSource = ItemSource.USER
    content: Content | None = None
    text: str | None = None
    client_message_id: str | None = None  # the sender's own ID for the message
    author: str | None = None  # the sending account, whose budget pays for the turn
    agent_id: str | None = None
    conversation_id: str | None = None
    cron_task_id: str | None = None  # of a cron prompt: its schedule
    no_coalesce: bool = False  # of a message: always a separate turn
    key: str | None = None  # deduplicates an item that might be sent twice

    @property
    def scope(self) -> Scope:
        """The agent and the conversation that the item is for."""
        return (self.agent_id, self.conversation_id)

    @property
    def is_coalescable(self) -> bool:
        return self.kind in COALESCABLE


class StoredItem(NewItem, frozen=True, kw_only=True, omit_defaults=True):
    """An immutable stored item. `seq` orders all items an inbox ever had; `id` is derived from it."""

    id: str
    seq: int
    enqueued_at: int

    @property
    def message_id(self) -> str:
        """The ID that agents use: the sender's, if there is one."""
        return self.client_message_id or f"cm-{self.id}"


class ItemBatch(Struct, frozen=True, kw_only=True):
    """The items of one turn, in order."""

    batch_id: str
    items: tuple[StoredItem, ...]
    merged_count: int  # number of items
    queue_len_after: int


def check_item(item: NewItem) -> None:
    """Raise InvalidInboxItem unless the item has exactly the fields that its kind needs."""
    if item.kind not in KINDS:
        raise InvalidInboxItem(f"an item is of kind {', '.join(ItemKind)}, not {item.kind!r:.120}")
    if item.kind == ItemKind.MESSAGE:
        is_parts = isinstance(item.content, list) and all(isinstance(part, dict) for part in item.content)
        if not (is_parts or isinstance(item.content, str)):
            raise InvalidInboxItem(f"the content of a message is text or a list of parts, not {item.content!r:.120}")
        if item.text is not None:
            raise InvalidInboxItem("a message has `content` and no `text`")
    else:
        if not isinstance(item.text, str):
            raise InvalidInboxItem(f"an item of kind {item.kind} has a `text`, not {item.text!r:.120}")
        if item.content is not None:
            raise InvalidInboxItem(f"an item of kind {item.kind} has a `text` and no `content`")
    if item.no_coalesce and item.kind != ItemKind.MESSAGE:
        raise InvalidInboxItem(f"`no_coalesce` is for messages, not for an item of kind {item.kind}")
    if item.cron_task_id is not None and item.kind != ItemKind.CRON_PROMPT:
        raise InvalidInboxItem(f"`cron_task_id` is for cron prompts, not for an item of kind {item.kind}")
    _check_names(item)
    _check_size(item)


def is_author(text: str) -> bool:
    """Return whether the text is valid as an author."""
    return 1 <= len(text) <= LONGEST_AUTHOR and text.isprintable()


def _check_names(item: NewItem) -> None:
    if item.key is not None and not 1 <= len(item.key) <= LONGEST_KEY:
        raise InvalidInboxItem(f"the key of an item has 1 to {LONGEST_KEY} characters, not {len(item.key)}")
    if item.author is not None and not is_author(item.author):
        raise InvalidInboxItem(f"the author of an item has 1 to {LONGEST_AUTHOR} printable characters")


def _check_size(item: NewItem) -> None:
    """Items are read at every poll, so large content belongs in a file."""
    try:
        encoded = msgspec.json.encode(item)
        is_deep = isinstance(item.content, list) and is_too_deep(msgspec.json.decode(encoded)["content"])
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidInboxItem(f"the item cannot be stored as JSON: {error}") from None
    if len(encoded) > LARGEST_ITEM:
        raise InvalidInboxItem(
            f"an item has at most {LARGEST_ITEM:,} bytes as JSON, and this one has {len(encoded):,}; "
            "store large content in a file, and send the file name"
        )
    if is_deep:
        raise InvalidInboxItem(
            f"lists and objects can be nested at most {DEEPEST} levels deep in an item; make it flatter"
        )


def numbered(item: NewItem, seq: int, now: int) -> StoredItem:
    """Return the item as stored under this seq."""
    fields = {name: getattr(item, name) for name in NewItem.__struct_fields__}
    return StoredItem(id=f"q-{seq}", seq=seq, enqueued_at=now, **fields)


def head_run(items: Sequence[StoredItem]) -> int:
    """Return the size of the next batch: leading coalescable items with the scope of the first one.

    A barrier forms a batch alone, and so does a message with `no_coalesce`. Nothing is skipped or reordered.
    """
    if not items:
        return 0
    first = items[0]
    if first.no_coalesce or not first.is_coalescable:
        return 1
    return sum(1 for _ in takewhile(lambda one: _joins(first, one), items))


def _joins(first: StoredItem, item: StoredItem) -> bool:
    return item.is_coalescable and not item.no_coalesce and item.scope == first.scope


# Names of inboxes and consumers, and the size of a consumer's memory.


LONGEST_NAME = 200
LARGEST_MEMORY = 16_000  # bytes of JSON


def check_consumer(consumer: str) -> None:
    """Raise InvalidInbox unless the name is a valid consumer."""
    _check_name("the consumer of an inbox", consumer)


def _check_name(what: str, name: object) -> None:
    is_text = isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME and name.isprintable()
    if not is_text or any(each in str(name) for each in " {}"):
        raise InvalidInbox(
            f"{what} has 1 to {LONGEST_NAME} printable characters, no spaces and no braces; got: {name!r:.120}"
        )


def check_memory(memory: object) -> None:
    """Raise InvalidInbox unless it is small and survives a JSON round trip."""
    try:
        encoded = msgspec.json.encode(memory)
        decoded = msgspec.json.decode(encoded)
        is_same = decoded == memory
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidInbox(f"the memory of an inbox must be JSON: {error}") from None
    if len(encoded) > LARGEST_MEMORY:
        raise InvalidInbox(f"the memory of an inbox has at most {LARGEST_MEMORY:,} bytes of JSON, not {len(encoded):,}")
    if is_too_deep(decoded):
        raise InvalidInbox(f"the memory of an inbox can be nested at most {DEEPEST} levels deep; make it flatter")
    if not isinstance(memory, dict) or not is_same:
        raise InvalidInbox("the memory of an inbox must be a JSON object of strings, numbers, lists, and objects")
