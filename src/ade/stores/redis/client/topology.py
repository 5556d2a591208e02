"""Topologies: which server holds a partition in a single-server, Sentinel, or cluster setup."""

import binascii
import random
from collections.abc import Sequence
from typing import Any, Protocol

from ade.stores.redis.client.connections import ServerPool, ServerPools
from ade.stores.redis.client.errors import FAILURES, Command, code_of, passes, reason, translated
from ade.stores.redis.client.options import RedisAddress

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
