"""From items to one turn of an agent: how many to take, what they say together, and whose envelope it is in."""

from collections.abc import Collection, Mapping, Sequence

from ade.core.inbox.items import COALESCABLE, ItemKind, Part, QueueItem, head_run
from ade.core.inbox.notices import BlockedReason

SEPARATOR = "\n"
_IN_THE_WAY: Mapping[ItemKind, BlockedReason] = {
    ItemKind.APPROVAL_RESULT: BlockedReason.PENDING_APPROVALS,
    ItemKind.OVERLAY_ACTION: BlockedReason.OVERLAY_OPEN,
}
MESSAGES_ONLY = frozenset({ItemKind.MESSAGE})  # what woke a listener at first: notifications alone never did


def turn_length(items: Sequence[QueueItem], waking: Collection[ItemKind] = COALESCABLE) -> int:
    """How many items to consume for the next turn; 0 when none of the head's run is of a kind that wakes.

    A barrier at the head is a turn only for those whom its kind wakes: mostly it is for whoever asked the question.
    """
    run = items[: head_run(items)]
    return len(run) if any(item.kind in waking for item in run) else 0


def in_the_way(items: Sequence[QueueItem], waking: Collection[ItemKind] = COALESCABLE) -> BlockedReason | None:
    """Why there is no turn to take though items wait: the first one is an answer for whoever asked. None: there is."""
    if not items or turn_length(items, waking):
        return None
    return _IN_THE_WAY.get(items[0].kind, BlockedReason.RUNTIME_BUSY)


def merged_content(items: Sequence[QueueItem], separator: str = SEPARATOR) -> list[Part] | None:
    """The parts of one user turn, in order, with a separator between the items; None for no items."""
    parts: list[Part] = []
    for number, item in enumerate(items):
        if number:
            parts.append(_text(separator))
        parts += _parts(item)
    return parts or None


def envelope_of(items: Sequence[QueueItem]) -> QueueItem | None:
    """The first message: who sent it, and under which id, holds for the whole turn. None without a message."""
    return next((item for item in items if item.kind == ItemKind.MESSAGE), None)


def _parts(item: QueueItem) -> list[Part]:
    content = item.text if item.content is None else item.content
    return content if isinstance(content, list) else [_text(content or "")]


def _text(text: str) -> Part:
    return {"type": "text", "text": text}
