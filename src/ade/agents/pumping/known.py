"""The inbox of one conversation as its pump knows it."""

from collections.abc import Callable
from typing import TypeVar

from ade.agents.deciding import carry_out
from ade.core.inbox.state import Inbox, InboxChange
from ade.ports import Stores

T = TypeVar("T")


class KnownInbox:
    """Written without a look first, as long as nobody else has written: mostly that is so."""

    def __init__(self, stores: Stores, inbox_id: str) -> None:
        self.id = inbox_id
        self._stores = stores
        self._newest: Inbox | None = None

    async def newest(self) -> Inbox:
        """As it was written or read last."""
        if self._newest is None:
            self._newest = await self._stores.inboxes.load(self.id)
        return self._newest

    def forget(self) -> None:
        """Others may have changed it: read it before it is used again."""
        self._newest = None

    async def carry_out(self, decide: Callable[[Inbox], InboxChange[T]]) -> InboxChange[T]:
        """Write a decision; when somebody was faster, read again and decide again. Raises what `decide` raises."""
        known = self._newest
        self.forget()  # unless the write succeeds, nobody knows
        change = await carry_out(self._stores, self.id, decide, known=known)
        self._newest = change.after
        return change
