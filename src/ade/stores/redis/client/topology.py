"""Topologies: which server holds a partition (one server, Sentinel, or a cluster), and which partitions respond."""

import asyncio
import binascii
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ade.errors import StoreError, StoreUnavailable
from ade.logs import Log
from ade.stores.redis.client.connections import ServerPool, ServerPools
from ade.stores.redis.client.errors import FAILURES, Command, code_of, passes, reason, translated
from ade.stores.redis.client.options import RedisAddress
from ade.stores.wakeups import running_loop

if TYPE_CHECKING:
    from ade.stores.redis.client.client import RedisClient

_LOOK_S = 1.0  # per request


class ServerNotFound(Exception):
    """No server could be found now; the message says why. It may be there at the next look."""


class Topology(Protocol):
    """The known primaries, shared by all event loops; each refreshes over its own connections."""

    recheck_s: float  # interval of refreshes while there is traffic

    def where(self, partition: int) -> RedisAddress | None:
        """The primary of a partition; None while unknown."""

    def primaries(self) -> Sequence[RedisAddress]:
        """All known primaries."""

    def moved(self, partition: int, address: RedisAddress) -> None:
        """Record a MOVED redirection of a partition."""

    async def learn(self, nodes: ServerPools, failed: RedisAddress | None) -> None:
        """Refresh, preferably not from the server that just failed. Raises ServerNotFound."""


class FixedServer:
    """A single server, always at the same address."""

    recheck_s = float("inf")

    def __init__(self, address: RedisAddress) -> None:
        self._address = address

    def where(self, partition: int) -> RedisAddress:
        return self._address

    def primaries(self) -> Sequence[RedisAddress]:
        return [self._address]

    def moved(self, partition: int, address: RedisAddress) -> None:
        """Only cluster nodes redirect, and the start-up check rejects those."""

    async def learn(self, nodes: ServerPools, failed: RedisAddress | None) -> None:
        """Do nothing: the address is fixed."""


async def discover(node: ServerPool, question: Command, *, unless_forbidden: Any = None) -> Any:
    """Return the response to one topology command. Raises ServerNotFound if another server should be asked.

    An ACL can forbid a command; `unless_forbidden` then replaces a response that is not vital.
    """
    try:
        [answer] = await node.exchange([question], _LOOK_S)
    except FAILURES as error:
        answer = error
    if isinstance(answer, Exception):
        if unless_forbidden is not None and code_of(answer) == "NOPERM":
            return unless_forbidden
        if passes(answer):
            raise ServerNotFound(f"{node.address} does not answer ({reason(answer)})") from answer
        raise translated(answer, node.address) from answer
    return answer


class SentinelServer:
    """The server that the sentinels name, if its own ROLE is primary."""

    # A replaced primary accepts writes, which are lost later, until the sentinels reach it.
    recheck_s = 1.0

    def __init__(self, sentinels: Sequence[RedisAddress], service: str) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._primary: RedisAddress | None = None

    def where(self, partition: int) -> RedisAddress | None:
        return self._primary

    def primaries(self) -> Sequence[RedisAddress]:
        return [] if self._primary is None else [self._primary]

    def moved(self, partition: int, address: RedisAddress) -> None:
        """Only cluster nodes redirect, and the start-up check rejects those."""

    async def learn(self, nodes: ServerPools, failed: RedisAddress | None) -> None:
        said = []
        for sentinel in list(self._sentinels):
            try:
                self._primary = await self._named_by(sentinel, nodes)
            except ServerNotFound as error:
                said.append(str(error))
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)  # the first to be asked next time
            return
        raise ServerNotFound(f"no sentinel knows a working primary of {self._service}: {'; '.join(said)}")

    async def _named_by(self, sentinel: RedisAddress, nodes: ServerPools) -> RedisAddress:
        named = await discover(nodes.sentinel(sentinel), ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))
        if named is None:
            raise ServerNotFound(f"{sentinel} watches no service of this name")
        address = RedisAddress(named[0].decode(), int(named[1]))
        # Sentinels might still name the failed primary, or already a replica that is not promoted yet.
        [role, *_] = await discover(nodes.server(address), ("ROLE",), unless_forbidden=[b"master"])
        if role != b"master":
            raise ServerNotFound(f"{address} is not a primary yet")
        return address


def key_slot(key: bytes) -> int:
    """Return the cluster slot of a key, by its hash tag in braces or else by the whole key."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % 16384


_Range = tuple[int, int, RedisAddress]


class SlotMap:
    """The owner of the slot of each partition. `prefixes` are the partition prefixes with their hash tags."""

    recheck_s = float("inf")  # a node that no longer owns a slot redirects

    def __init__(self, seeds: Sequence[RedisAddress], prefixes: Sequence[str]) -> None:
        self._seeds = list(seeds)
        self._slots = [key_slot(prefix.encode()) for prefix in prefixes]
        self._owners: list[RedisAddress | None] = [None] * len(prefixes)
        self._primaries: list[RedisAddress] = []

    def where(self, partition: int) -> RedisAddress | None:
        return self._owners[partition]

    def primaries(self) -> Sequence[RedisAddress]:
        return self._primaries

    def moved(self, partition: int, address: RedisAddress) -> None:
        self._owners[partition] = address

    async def learn(self, nodes: ServerPools, failed: RedisAddress | None) -> None:
        said = []
        for address in self._sources(failed):
            try:
                ranges = await _slots_known_to(address, nodes)
            except ServerNotFound as error:
                said.append(str(error))
                continue
            self._owners = [_owner(slot, ranges) for slot in self._slots]
            self._primaries = sorted({owner for _, _, owner in ranges})
            return
        raise ServerNotFound(f"no node of the cluster tells who serves which slots: {'; '.join(said)}")

    def _sources(self, failed: RedisAddress | None) -> list[RedisAddress]:
        """Known nodes in random order, so that a node with a stale view is not always first; the failed one last."""
        known = list({*self._primaries, *self._seeds})
        random.shuffle(known)
        return sorted(known, key=lambda address: address == failed)


async def _slots_known_to(address: RedisAddress, nodes: ServerPools) -> list[_Range]:
    answer = await discover(nodes.server(address), ("CLUSTER", "SLOTS"))
    ranges = [_range(entry, asked=address) for entry in answer]
    if not ranges:
        raise ServerNotFound(f"{address} knows no slots")
    return ranges


def _range(entry: list[Any], asked: RedisAddress) -> _Range:
    """First slot, last slot, and primary; a node that does not know its own host leaves it out."""
    first, last, primary = entry[:3]
    host = (primary[0] or b"").decode()
    return int(first), int(last), RedisAddress(asked.host if host in ("", "?") else host, int(primary[1]))


def _owner(slot: int, ranges: Sequence[_Range]) -> RedisAddress | None:
    return next((owner for first, last, owner in ranges if first <= slot <= last), None)


# Calls to several partitions: an unreachable node must not block the others.


Answer = TypeVar("Answer")
SHORT_PATIENCE_S = 1.0  # per partition; the results of the others wait meanwhile
_PROBE_EVERY_S = 0.5  # an unreachable partition is asked again this often, while no call waits for it

_log = Log("ade.store")


class ReachablePartitions:
    """Which partitions respond. Those that do not are skipped, and probed in the background until they respond again.

    So an unreachable node costs the calls to several partitions one short delay, and nothing after that.
    """

    def __init__(self, link: "RedisClient") -> None:
        self._link = link
        self._probe_at: dict[int, float] = {}  # unreachable partition -> when it is probed next
        self._back_at: dict[int, float] = {}  # when a partition responded again
        self._probes: set[asyncio.Task[None]] = set()

    def is_away(self, partition: int) -> bool:
        """Whether the partition did not respond. From an event loop, this also starts a probe that is due."""
        at = self._probe_at.get(partition)
        if at is None:
            return False
        now = time.monotonic()
        if at <= now and running_loop() is not None:
            self._probe_at[partition] = now + _PROBE_EVERY_S
            probe = asyncio.get_running_loop().create_task(self._probe(partition), name="ade-partition-probe")
            self._probes.add(probe)
            probe.add_done_callback(self._probes.discard)
        return True

    def is_any_away(self) -> bool:
        """Whether some partition did not respond."""
        return len(self.near(range(self._link.partitions))) < self._link.partitions

    def near(self, partitions: Iterable[int]) -> list[int]:
        """Return those that respond, as far as is known."""
        return [partition for partition in partitions if not self.is_away(partition)]

    def note(self, partition: int, error: StoreUnavailable | None = None) -> None:
        """Record that a partition did not respond, or that it did."""
        if error is None:
            if self._probe_at.pop(partition, None) is not None:
                self._back_at[partition] = time.monotonic()
                _log.info("store.partition_back", partition=partition)
        elif partition not in self._probe_at:
            self._probe_at[partition] = time.monotonic() + _PROBE_EVERY_S
            _log.warning("store.partition_away", partition=partition, reason=error.detail)

    def is_back_since(self, partition: int) -> float:
        """Return for how many seconds the partition has responded again; infinite if it always did."""
        return time.monotonic() - self._back_at.get(partition, float("-inf"))

    def check(self, partition: int) -> None:
        """Raise StoreUnavailable if the partition did not respond a moment ago."""
        if self.is_away(partition):
            raise StoreUnavailable(f"partition {partition} of the cluster does not respond")

    async def each(
        self, partitions: Sequence[int], ask: Callable[[int, float | None], Awaitable[Answer]]
    ) -> dict[int, Answer]:
        """Return the responses of partitions that respond in time; `ask` gets the time limit. Raises if none does."""
        if len(partitions) == 1:
            return {partitions[0]: await ask(partitions[0], None)}
        near = self.near(partitions) or list(partitions)
        given = await asyncio.gather(*(ask(each, SHORT_PATIENCE_S) for each in near), return_exceptions=True)
        answers: dict[int, Answer] = {}
        for partition, answer in zip(near, given, strict=True):
            if isinstance(answer, StoreUnavailable):
                self.note(partition, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self.note(partition)
                answers[partition] = answer
        if not answers:
            raise next(answer for answer in given if isinstance(answer, StoreUnavailable))
        return answers

    async def in_turn(
        self, partitions: Sequence[int], ask: Callable[[int, int, float | None], Awaitable[int]], limit: int
    ) -> int:
        """Call one partition after the other; `ask` gets what is left of the limit, and returns how much it did.

        Returns the sum. Partitions that do not respond are skipped. Raises if none does.
        """
        if len(partitions) == 1:
            return await ask(partitions[0], limit, None)
        done, failure, has_responded = 0, StoreUnavailable("no partition of the cluster responds"), False
        for partition in self.near(partitions) or partitions:
            if done >= limit:
                break
            try:
                done += await ask(partition, limit - done, SHORT_PATIENCE_S)
                has_responded = True
            except StoreUnavailable as error:
                failure = error
                self.note(partition, error)
        if not has_responded and limit > 0:
            raise failure
        return done

    async def _probe(self, partition: int) -> None:
        """Read something from a partition that did not respond."""
        command = ("EXISTS", f"{self._link.names[partition].prefix}meta")
        with suppress(StoreError):
            await self._link.ask(partition, command, patience_s=SHORT_PATIENCE_S)
            self.note(partition)
