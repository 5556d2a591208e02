"""The time of the server, which is the time of everybody who uses it."""

import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ade.stores.redis.client.client import RedisClient


REMEASURE_S = 10.0
_DRIFT = 100e-6  # how fast two clocks may part: more than any working crystal does
_CATCHING_UP = 0.5  # how fast time goes here while what was told is ahead of the server


class ServerClock:
    """An estimate that is corrected by every measurement and never goes backwards.

    When the server's clock turns out to be behind what was told already, time here goes at half its speed until the
    server has caught up.
    """

    def __init__(self) -> None:
        local_ns = time.monotonic_ns()
        self._offset_ns = time.time_ns() - local_ns  # server time minus local time; a guess until it is measured
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
        """Whether the next exchange with a server should measure."""
        measured = self._measured_at_ns
        return measured is None or local_ns - measured > REMEASURE_S * 1e9

    def observe(self, server_us: int, sent_ns: int, received_ns: int) -> None:
        """Take in what the server's clock showed at some moment between sending and receiving.

        A slow answer says little: it is used only if it contradicts what is known, or if that has grown old.
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
        """Ask the server now. Traffic does the same by itself every ten seconds."""
        with self._lock:
            self._measured_at_ns = None
        await link.ask(0, ("PING",))


# Names for requests whose repetition must be told from another request that asks for the same.


def new_token() -> str:
    return os.urandom(8).hex()
