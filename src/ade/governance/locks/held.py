"""A lock that is held. It knows by its own clock when it can no longer be sure of that, whatever the store says."""

import asyncio
from collections.abc import Callable

from ade.core.errors import LockLost
from ade.core.locks.records import LockRequest
from ade.core.locks.wishes import LockMode

_MARGIN, _LONGEST_MARGIN_S = 0.1, 1.0


def certain_for(ttl_ms: int) -> float:
    """Seconds after the start of a call that granted or renewed a lease in which it surely holds."""
    ttl_s = ttl_ms / 1000
    return ttl_s - max(ttl_s * _MARGIN, min(_LONGEST_MARGIN_S, ttl_s / 4))


class HeldLock:
    """Granted. Use it from the event loop that asked for it; `check` and the tokens from any thread."""

    def __init__(
        self, grant: LockRequest, asked_at: float, loop: asyncio.AbstractEventLoop, *, is_told: bool = True
    ) -> None:
        self.grant = grant
        self.loop = loop
        self._why_lost: str | None = None
        self._on_lost: list[Callable[[], object]] = []
        self._until = 0.0
        self._is_told = is_told  # whether somebody is to be told when it is lost, and does not look by himself
        self._alarm: asyncio.TimerHandle | None = None
        self.extend(grant, asked_at)

    @property
    def id(self) -> str:
        return self.grant.id

    @property
    def is_lost(self) -> bool:
        return self._why_lost is not None or self.loop.time() >= self._until

    def check(self) -> None:
        """Raise LockLost unless the lock is surely held at this moment. Nobody is asked."""
        if self.is_lost:
            raise LockLost(
                f"the lock on {', '.join(self.grant.resources)} is not held any more:"
                f" {self._why_lost or 'it was not renewed in time'}"
            )

    def token(self, resource: str | None = None) -> int:
        """The fencing token to give to the resource with every write: it refuses one that is lower than it has seen."""
        self.check()
        items = {item.resource: item.token for item in self.grant.items}
        if resource is None and len(items) == 1:
            return next(iter(items.values()))
        return items[resource or ""]

    def mode(self, resource: str) -> LockMode | None:
        return self.grant.mode_of(resource)

    def when_lost(self, tell: Callable[[], object]) -> None:
        """Called on the event loop, once, as soon as the lock is lost."""
        self._on_lost.append(tell)

    # by whoever keeps it

    def extend(self, grant: LockRequest, asked_at: float) -> None:
        """It was granted or renewed by a call that began at this moment."""
        if self._why_lost is not None:
            return
        self.grant = grant
        self._until = asked_at + certain_for(grant.ttl_ms)
        if self._alarm is None and self._is_told:
            self._alarm = self.loop.call_at(self._until, self._look)

    def extend_from_thread(self, grant: LockRequest, asked_at: float) -> None:
        """The same by another thread: its own loop may be blocked. The alarm looks at the time when it goes off."""
        if self._why_lost is None:
            self.grant = grant
            self._until = max(self._until, asked_at + certain_for(grant.ttl_ms))

    @property
    def is_late(self) -> bool:
        """Whether it should have been renewed some time ago."""
        return self.loop.time() > self._until - certain_for(self.grant.ttl_ms) / 2

    def _look(self) -> None:
        self._alarm = None
        if self.loop.time() >= self._until:
            self.lose("it was not renewed in time")
        else:
            self._alarm = self.loop.call_at(self._until, self._look)

    def lose(self, why: str) -> None:
        if self._why_lost is None:
            self._why_lost = why
            self.forget()
            for tell in self._on_lost:
                tell()

    def forget(self) -> None:
        """Nobody needs to be told any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
