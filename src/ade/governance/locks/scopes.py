"""What runs in one go, such as a run of a task: what it holds, it may ask for again, and it never waits for itself."""

import asyncio
from collections.abc import Iterable
from contextvars import ContextVar

from ade.core.locks.records import covers
from ade.core.locks.wishes import Wish
from ade.governance.locks.held import HeldLock

Place = asyncio.Task[object] | int  # a task of an event loop, or a thread


class Scope:
    def __init__(self, at: Place | None, scope_id: str) -> None:
        self.id = scope_id
        self.at = at
        self.held: list[HeldLock] = []

    def covering(self, namespace: str, wishes: Iterable[Wish]) -> HeldLock | None:
        """A lock held here that has all of this: the exclusive one includes the share."""
        for held in self.held:
            if held.grant.namespace == namespace and covers(held.grant.items, wishes):
                return held
        return None


current: ContextVar[Scope | None] = ContextVar("ade_lock_scope", default=None)


def scope_at(at: Place | None) -> Scope | None:
    """The scope of this very place: one that was inherited from another place is not its own."""
    known = current.get()
    return known if known is not None and known.at == at else None
