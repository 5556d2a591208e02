"""Deciding on an inbox and writing that, while others do the same.

Those of one process stand in line for an inbox: of all who read it at once only one could write. Against other
processes there is no line, so whoever was too slow reads again, after a pause that grows, for some seconds.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ade.core.errors import StaleWrite
from ade.core.inbox.state import Inbox, InboxChange
from ade.ports import InboxStore, Stores

Answer = TypeVar("Answer")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.1
_PATIENCE_S = 10.0

_Lines = WeakValueDictionary[str, asyncio.Lock]
_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[InboxStore, _Lines]] = WeakKeyDictionary()


async def carry_out(
    stores: Stores,
    inbox_id: str,
    decide: Callable[[Inbox], InboxChange[Answer]],
    *,
    known: Inbox | None = None,
    load: Callable[[str], Awaitable[Inbox]] | None = None,
) -> InboxChange[Answer]:
    """Write a decision; when somebody was faster, read and decide again. Raises what `decide` raises, and StaleWrite.

    `known` is the inbox as it was seen last, which saves a look if nobody has written since.
    """
    loop, line, tries = asyncio.get_running_loop(), _line_for(stores.inboxes, inbox_id), 0
    async with line:
        give_up_at = loop.time() + _PATIENCE_S
        while True:
            change = decide(known or await (load or stores.inboxes.load)(inbox_id))
            try:
                await stores.inboxes.write(change)
            except StaleWrite:
                if loop.time() >= give_up_at:
                    raise
            else:
                return change
            known = None
            await asyncio.sleep(_pause(tries))
            tries += 1


def _line_for(store: InboxStore, inbox_id: str) -> asyncio.Lock:
    """It is there as long as somebody stands in it."""
    of_store = _lines.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    lines = of_store.setdefault(store, WeakValueDictionary())
    return lines.setdefault(inbox_id, asyncio.Lock())


def _pause(tries: int) -> float:
    """None at first: whoever was quicker is done."""
    return 0 if tries == 0 else random.random() * min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 20))
