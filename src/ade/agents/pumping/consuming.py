"""What feeds on an inbox: a function that is given batch after batch."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, runtime_checkable

from ade.core.inbox.items import KINDS, DequeuedBatch, ItemKind
from ade.core.inbox.notices import ClearReason
from ade.core.inbox.state import Inbox

# Called with a batch and its inbox as it was taken: `memory` is what was kept last, `lease` the right to write. It
# returns when all that the batch led to is stored, with what is to be found in `memory` next time; None leaves that as
# it is. After a crash it may be given the same items again.
Consume = Callable[[DequeuedBatch, Inbox], Awaitable[dict[str, Any] | None]]


@runtime_checkable
class Patient(Protocol):
    """A consumer whose work is done elsewhere."""

    async def only_waiting(self) -> Collection[str]:
        """The inboxes whose turn waits for a worker or for people: they take no place. Raises StoreError."""


def waking_of(consume: Consume) -> Collection[ItemKind]:
    """The kinds that make a turn for this consumer, as it says in `waking`: all, if it says nothing."""
    return getattr(consume, "waking", KINDS)


class GiveUp(Exception):
    """Raised by a consumer: this batch shall not be tried again. Its items are cleared for this reason.

    `memory` is what is to be found next time, written in the same step; None leaves that as it is.
    """

    def __init__(self, reason: ClearReason, why: str = "", memory: dict[str, Any] | None = None) -> None:
        super().__init__(why or reason)
        self.reason = reason
        self.why = why
        self.memory = memory
