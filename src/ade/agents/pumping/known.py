"""The inbox of one conversation as its pump knows it."""

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from ade.core.errors import StaleWrite
from ade.core.inbox.state import Inbox, InboxChange
from ade.ports import Stores

T = TypeVar("T")
_TRIES = 60  # against others who put items in; of those one gets through each time
_PAUSE_S = 0.01


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
        for tries_left in reversed(range(_TRIES)):
            change = decide(await self.newest())
            self.forget()  # unless the write succeeds, nobody knows
            try:
                await self._stores.inboxes.write(change)
            except StaleWrite:
                if not tries_left:
                    raise
                await asyncio.sleep(random.random() * _PAUSE_S)
            else:
                self._newest = change.after
                return change
        raise AssertionError("unreachable: the last try returns or raises")
