"""The part of the seam that keeps the inboxes of conversations."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # not free to load, and of use to few
    from ade.core.inbox.state import Inbox, InboxChange, InboxSummary


class InboxStore(Protocol):
    """What may be done with an inbox is decided by the core (`core/inbox`); here it is read and written.

    Leases of batches are judged by `Clock.steady()`.
    """

    async def load(self, inbox_id: str) -> "Inbox":
        """An inbox with all its items, in one read; an empty one of version 0 if it was never used.

        Raises InvalidInbox when there can be none of this id, and StoreCorrupt when it cannot be read.
        """

    async def outline(self, inbox_id: str) -> "Inbox":
        """As `load`, without what the items say: for those who want to be rid of items that cannot be read."""

    async def write(self, change: "InboxChange[Any]", write_id: str | None = None) -> None:
        """Write a decided change and the events of its notices as one, and ring INBOX.

        Raises StaleWrite unless the inbox has the version of `change.before`. A change that changes and tells nothing
        is not written. `write_id` is random: a write of the same id, whose answer was lost, may be
        repeated and happens once; without it only the store itself repeats.
        """

    async def ready(self, consumers: frozenset[str], limit: int) -> list[str]:
        """Ids of inboxes that are bound to one of these, have items, and of which no batch is out under a live lease.

        Those whose oldest item has waited longest come first.
        """

    async def list_inboxes(self, after: str, limit: int) -> "list[InboxSummary]":
        """By id, in order of their code points, those after `after`."""

    async def forget_empty(self, before_ms: int, limit: int) -> int:
        """Forget inboxes that are empty and were not written since, their memory and keys too; answer how many.

        On a cluster `limit` is that of each partition.
        """
