"""The server clock, which all processes share, and random tokens that identify requests."""

import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ade.stores.redis.client.client import RedisClient


REMEASURE_S = 10.0
_DRIFT = 100e-6  # assumed clock drift: more than any working crystal has
_CATCHING_UP = 0.5  # speed of this clock while its last value is ahead of the server


class ServerClock:
    """An estimate of the server time that every measurement corrects and that never goes backwards.

    If the server clock turns out to be behind the last returned value, this clock runs at half speed until the server
    has caught up.
    """

    def __init__(self) -> None:
        local_ns = time.monotonic_ns()
        self._offset_ns = time.time_ns() - local_ns  # server time minus local time; a guess until measured
        self._error_ns: float = float("inf")
        self._measured_at_ns: int | None = None
        self._told_ns = 0
        self._told_at_ns = local_ns
        self._lock = threading.Lock()

    def now(self) -> int:
        return self.at(time.monotonic_ns())

    def steady(self) -> int:
        return self.at(time.monotonic_ns())

    def at(self, local_ns: int) -> int:
        """The server's time in ms when this machine's monotonic clock shows `local_ns`."""
        with self._lock:
            passed = max(local_ns - self._told_at_ns, 0)
            estimate = local_ns + self._offset_ns
            self._told_ns = max(estimate, self._told_ns + int(passed * _CATCHING_UP))
            self._told_at_ns = max(local_ns, self._told_at_ns)
            return self._told_ns // 1_000_000

    def due(self, local_ns: int) -> bool:
        """Return whether the next exchange with the server should measure its time."""
        measured = self._measured_at_ns
        return measured is None or local_ns - measured > REMEASURE_S * 1e9

    def observe(self, server_us: int, sent_ns: int, received_ns: int) -> None:
        """Record the server time of some moment between sending and receiving.

        A slow response is imprecise: it is used only if it contradicts the estimate, or if the estimate is old.
        """
        middle, error = (sent_ns + received_ns) // 2, (received_ns - sent_ns) / 2
        offset = server_us * 1000 - middle
        with self._lock:
            measured = self._measured_at_ns
            age = 0 if measured is None else received_ns - measured
            known = self._error_ns + age * _DRIFT
            if error <= known or abs(offset - self._offset_ns) > error + known:
                self._offset_ns, self._error_ns = offset, error
            else:
                self._error_ns = known
            self._measured_at_ns = received_ns

    async def measure(self, link: "RedisClient") -> None:
        """Measure now. Regular traffic does so every 10 s."""
        with self._lock:
            self._measured_at_ns = None
        await link.ask(0, ("PING",))


# Idempotency tokens of requests.


def new_token() -> str:
    """Return a random token that distinguishes a repeated request from a new one with the same content."""
    return os.urandom(8).hex()
