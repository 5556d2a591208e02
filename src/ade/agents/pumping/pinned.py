"""A turn that was begun is taken again as it was: its mark in the memory of the inbox says how far it goes.

Without that, items which came meanwhile would join the batch, and nobody could tell which of them were told before.
"""

from typing import Any

import msgspec
from msgspec import Struct

from ade.core.inbox.items import DequeuedBatch
from ade.core.inbox.state import TURN, Inbox

MARK = TURN  # where it is in the memory


class BegunTurn(Struct, frozen=True, kw_only=True):
    """The seqs of its first and last item, and the task that it is."""

    first: int
    last: int
    task: str
    is_reset: bool = False  # somebody wants the conversation to begin anew after it

    def covers(self, batch: DequeuedBatch) -> bool:
        """Items of it may be gone, but none of another turn may be among them."""
        return all(self.first <= item.seq <= self.last for item in batch.items)


def begun_in(memory: dict[str, Any]) -> BegunTurn | None:
    """None if no turn was begun, or what is there was written by something else."""
    try:
        return msgspec.convert(memory.get(MARK), BegunTurn)
    except msgspec.ValidationError:
        return None


def with_turn(memory: dict[str, Any], turn: BegunTurn) -> dict[str, Any]:
    return {**memory, MARK: msgspec.to_builtins(turn)}


def without_turn(memory: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in memory.items() if name != MARK}


def pinned_count(inbox: Inbox) -> int:
    """How many items make the turn that was begun; 0 when none was, or all of it is gone."""
    turn = begun_in(inbox.memory)
    return 0 if turn is None else sum(1 for item in inbox.items if item.seq <= turn.last)
