"""The server clock, which all processes share, whether it was set forward, and random tokens that identify requests."""

import os
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ade.logs import Log

if TYPE_CHECKING:
    from ade.stores.redis.client.client import RedisClient
    from ade.stores.redis.client.options import RedisAddress


REMEASURE_S = 10.0
_DRIFT = 100e-6  # assumed clock drift: more than any working crystal has
_CATCHING_UP = 0.5  # speed of this clock while its last value is ahead of the server
_STEP_NS = 2_000_000_000  # a jump is a step if it is larger than this and the error of its measurement
_FIRST_SHARE = 0.5  # of a lease: a holder that is alive renews within a third

_log = Log("ade.store")


@cache
def _boot() -> str:
    """Identify the monotonic clock that the processes of this machine share; empty if that is not possible."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    except OSError:
        return ""


class VerifiedClock(NamedTuple):
    """What this process knows of the clock of a partition: `request.clock` in lua/lib/continuity.lua."""

    since_ms: int  # it has had no step forward since then
    earliest_ms: int  # that it can show now
    latest_ms: int
    step_ms: int  # the size of the last step, or 0
    before_ms: int  # the time before that step
    ahead_ms: int  # of the monotonic clock that all processes of this machine share
    machine: str  # the name of that clock, or empty


class _ServerRecord(NamedTuple):
    """What this process has measured of the clock of one server. `since_ms`: it has had no step since then."""

    offset_ns: int  # server time minus local time
    error_ns: float
    measured_at_ns: int
    since_ms: int
    step_ms: int = 0  # the size of the step at `since_ms`; 0 if that was the first measurement
    before_ms: int = 0  # the last measurement before the step

    def at_ms(self, local_ns: int) -> int:
        return (local_ns + self.offset_ns) // 1_000_000

    def margin_ns(self, local_ns: int) -> float:
        """How far the server time can be from the estimate without a step."""
        return _STEP_NS + self.error_ns + abs(local_ns - self.measured_at_ns) * _DRIFT

    def after(self, offset_ns: int, error_ns: float, local_ns: int) -> "_ServerRecord":
        """The record after another measurement."""
        jump, now_ms = offset_ns - self.offset_ns, (local_ns + offset_ns) // 1_000_000
        margin = self.margin_ns(local_ns) + error_ns
        if jump > margin:
            before_ms = self.at_ms(self.measured_at_ns)
            return _ServerRecord(offset_ns, error_ns, local_ns, now_ms, jump // 1_000_000, before_ms)
        known = self.margin_ns(local_ns) - _STEP_NS
        if error_ns > known and abs(jump) <= error_ns + known:  # imprecise, and no contradiction
            return self._replace(error_ns=known, measured_at_ns=local_ns)
        since_ms = self.since_ms
        if jump < -margin:  # scripts shift the leases from before a step back
            since_ms += jump // 1_000_000
        return self._replace(offset_ns=offset_ns, error_ns=error_ns, measured_at_ns=local_ns, since_ms=since_ms)


class _PartitionRecord(NamedTuple):
    """The same for a partition, which can move to another server with another clock."""

    server: _ServerRecord
    address: "RedisAddress"
    since_ms: int
    step_ms: int
    before_ms: int


class ServerClock:
    """An estimate of the server time that every measurement corrects and that never goes backwards.

    If the server clock turns out to be behind the last returned value, this clock runs at half speed until the server
    has caught up. On a cluster, whose servers can show different times, all processes follow `main`, the server of the
    first partition; other servers are measured too, each for itself.
    """

    def __init__(self, main: "Callable[[], RedisAddress | None]" = lambda: None) -> None:
        self._main = main
        local_ns = time.monotonic_ns()
        self._offset_ns = time.time_ns() - local_ns  # server time minus local time; a guess until measured
        self._error_ns: float = float("inf")
        self._measured_at_ns: int | None = None
        self._told_ns = 0
        self._told_at_ns = local_ns
        self._servers: dict[RedisAddress, _ServerRecord] = {}
        self._partitions: dict[int, _PartitionRecord] = {}
        self._doubted: set[RedisAddress] = set()
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

    def judged(self, lease_ms: int) -> int:
        """Leases of this length that ended by this time have expired; 0 soon after the start and after a step."""
        known = self.verified(0, self._main())
        if not isinstance(known, VerifiedClock):
            return 0
        watched_ms = (known.earliest_ms + known.latest_ms) // 2 - known.since_ms
        return self.steady() if watched_ms >= lease_ms * (1 if known.step_ms else _FIRST_SHARE) else 0

    def due(self, local_ns: int, address: "RedisAddress") -> bool:
        """Return whether the next exchange with the server should measure its time."""
        server = self._servers.get(address)
        return server is None or address in self._doubted or local_ns - server.measured_at_ns > REMEASURE_S * 1e9

    def measure_soon(self, address: "RedisAddress | None") -> None:
        """Have the next exchange with a server measure its time."""
        if address is not None:
            self._doubted.add(address)

    def verified(self, partition: int, address: "RedisAddress | None") -> VerifiedClock | bool:
        """Return what this process knows of the clock of a partition; False if nothing was measured yet."""
        local_ns = time.monotonic_ns()
        server = None if address is None else self._servers.get(address)
        if address is None or server is None:
            return False
        known = self._partitions.get(partition)
        if known is None or known.server is not server:
            known = self._partitions[partition] = _moved(known, server, address, local_ns)
        now_ms, margin_ms = server.at_ms(local_ns), int(server.margin_ns(local_ns)) // 1_000_000
        return VerifiedClock(
            known.since_ms,
            now_ms - margin_ms,
            now_ms + margin_ms,
            known.step_ms,
            known.before_ms,
            server.offset_ns // 1_000_000,
            _boot(),
        )

    def observe(self, server_us: int, sent_ns: int, received_ns: int, address: "RedisAddress") -> None:
        """Record the server time of some moment between sending and receiving.

        A slow response is imprecise: it is used only if it contradicts the estimate, or if the estimate is old.
        """
        middle, error = (sent_ns + received_ns) // 2, (received_ns - sent_ns) / 2
        offset = server_us * 1000 - middle
        with self._lock:
            self._observe_server(address, offset, error, received_ns)
            measured = self._measured_at_ns
            if measured is not None and address != (self._main() or address):
                return
            age = 0 if measured is None else received_ns - measured
            known = self._error_ns + age * _DRIFT
            if error <= known or abs(offset - self._offset_ns) > error + known:
                self._offset_ns, self._error_ns = offset, error
            else:
                self._error_ns = known
            self._measured_at_ns = received_ns

    def _observe_server(self, address: "RedisAddress", offset_ns: int, error_ns: float, local_ns: int) -> None:
        self._doubted.discard(address)
        known = self._servers.get(address)
        if known is None:
            since_ms = (local_ns + offset_ns) // 1_000_000
            self._servers[address] = _ServerRecord(offset_ns, error_ns, local_ns, since_ms)
            return
        after = self._servers[address] = known.after(offset_ns, error_ns, local_ns)
        if after.step_ms and after.since_ms != known.since_ms:
            _log.warning(
                "store.clock_stepped",
                server=str(address),
                step_s=round(after.step_ms / 1000, 1),
                hint="the clock of the server was set forward, or this machine was suspended. No lease is judged until"
                " one lease time has passed",
            )

    async def measure(self, link: "RedisClient") -> None:
        """Measure now. Regular traffic does so every 10 s."""
        self.measure_soon(self._main())
        await link.ask(0, ("PING",))


def _moved(
    known: _PartitionRecord | None, server: _ServerRecord, address: "RedisAddress", local_ns: int
) -> _PartitionRecord:
    """The record of a partition after a measurement, or after it has moved to another server."""
    own = _PartitionRecord(server, address, server.since_ms, server.step_ms, server.before_ms)
    if known is None:
        return own
    if known.address == address:
        is_continuous = known.server.since_ms == server.since_ms
        return known._replace(server=server) if is_continuous else own
    ahead = server.offset_ns - known.server.offset_ns
    margin = server.margin_ns(local_ns) + known.server.margin_ns(local_ns) - _STEP_NS
    if ahead > margin:
        return own._replace(
            since_ms=server.at_ms(local_ns),
            step_ms=ahead // 1_000_000,
            before_ms=known.server.at_ms(known.server.measured_at_ns),
        )
    since_ms = known.since_ms + (ahead // 1_000_000 if ahead < -margin else 0)
    return known._replace(server=server, address=address, since_ms=since_ms)


# Idempotency tokens of requests.


def new_token() -> str:
    """Return a random token that distinguishes a repeated request from a new one with the same content."""
    return os.urandom(8).hex()
