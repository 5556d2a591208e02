"""The restart guard of one conversation, as one process knows it."""

import asyncio
import random

from ade.core.errors import StoreError
from ade.core.events import ALERT, Event
from ade.core.inbox import restarts
from ade.core.inbox.restarts import FRESH, RestartLimits, Restarts
from ade.logs import Log
from ade.ports import Stores

log = Log("ade.pumps")


class Guard:
    def __init__(self, inbox_id: str, limits: RestartLimits) -> None:
        self.inbox_id = inbox_id
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._known: Restarts = FRESH
        self._next_try = 0

    @property
    def pause_s(self) -> float:
        """How long to wait before the next try; 0 or less: not at all."""
        return (self._next_try - self._now()) / 1000

    @property
    def is_resting(self) -> bool:
        """Whether it has failed too often, and not just once."""
        return restarts.is_resting(self._known, self._limits, self._now())

    @property
    def is_forgotten(self) -> bool:
        return restarts.is_forgotten(self._known, self._limits, self._now())

    def failed(self) -> None:
        self._learn(restarts.failed(self._known, self._limits, self._now()))

    def succeeded(self) -> None:
        self._learn(restarts.succeeded(self._known))

    def inherit(self, returns: int) -> None:
        self._learn(restarts.inherited(self._known, returns, self._limits, self._now()))

    async def alert(self, stores: Stores) -> None:
        """Tell people that it rests; that it cannot be written is no reason to stop."""
        seconds = round(self.pause_s, 1)
        log.warning("pump.resting", conversation=self.inbox_id, in_a_row=self._known.in_a_row, seconds=seconds)
        payload: dict[str, object] = {
            "what": "conversation_rests",
            "inbox_id": self.inbox_id,
            "failures": len(self._known.failed_at),
            "in_a_row": self._known.in_a_row,
            "seconds": seconds,
        }
        try:
            await stores.documents.write([], [Event(type=ALERT, at=stores.clock.now(), payload=payload)])
        except StoreError as error:
            log.warning("pump.alert_not_written", conversation=self.inbox_id, error=str(error))

    def _learn(self, known: Restarts) -> None:
        self._known = known
        self._next_try = restarts.next_try(known, self._limits, random.random())

    def _now(self) -> int:
        return round(self._loop.time() * 1000)
