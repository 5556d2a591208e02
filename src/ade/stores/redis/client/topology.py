"""A cluster: each partition is one slot, and any node tells which node serves it."""

import binascii
import random
from collections.abc import Sequence
from typing import Any, Protocol

from ade.stores.redis.client.connection import Command
from ade.stores.redis.client.errors import FAILURES, code_of, passes, reason, translated
from ade.stores.redis.client.options import RedisAddress
from ade.stores.redis.client.pool import ServerPool, ServerPools

# Which server holds a partition now: a fixed one, the one the sentinels name, or a node of the cluster.


_LOOK_S = 1.0  # for each question


class ServerNotFound(Exception):
    """No server could be found now; the message says why. It may be there at the next look."""


class Topology(Protocol):
    """What is known is shared by all event loops; each asks over connections of its own."""

    recheck_s: float  # how long what was learnt may be used without another look, while there is traffic

    def where(self, partition: int) -> RedisAddress | None:
        """The primary to send to, None while it is not known."""

    def primaries(self) -> Sequence[RedisAddress]:
        """Every primary known."""

    def moved(self, partition: int, address: RedisAddress) -> None:
        """A server said where the partition is."""

    async def learn(self, nodes: ServerPools, failed: RedisAddress | None) -> None:
        """Find out anew, best not from the server that has just failed. Raises NotFound."""


class FixedServer:
    """One server. If it is away, it comes back at the same address or not at all."""

    recheck_s = float("inf")

    def __init__(self, address: RedisAddress) -> None:
        self._address = address

    def where(self, partition: int) -> RedisAddress:
        return self._address

    def primaries(self) -> Sequence[RedisAddress]:
        return [self._address]

    def moved(self, partition: int, address: RedisAddress) -> None:
        """Only a node of a cluster says so, and the start-up check refuses those."""

    async def learn(self, nodes: ServerPools, failed: RedisAddress | None) -> None:
        """There is nothing to find out."""


async def discover(node: ServerPool, question: Command, *, unless_forbidden: Any = None) -> Any:
    """The answer to one question about the topology. Raises NotFound if another server should be asked.

    Some users may not ask everything; `unless_forbidden` stands in for an answer that is not vital.
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


# A primary watched by sentinels, who name another when it is gone.


class SentinelServer:
    """Whom the sentinels name, if it says itself that it is a primary."""

    # A primary that was replaced goes on taking writes, which will be lost, until the sentinels reach it.
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
        """Only a node of a cluster says so, and the start-up check refuses those."""

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
        # Sentinels may still name the one that is gone, or already one that is not promoted yet.
        [role, *_] = await discover(nodes.server(address), ("ROLE",), unless_forbidden=[b"master"])
        if role != b"master":
            raise ServerNotFound(f"{address} is not a primary yet")
        return address


# Which slot of a cluster a key is in.


def key_slot(key: bytes) -> int:
    """By the text in braces if there is one, else by the whole key."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % 16384


_Range = tuple[int, int, RedisAddress]


class SlotMap:
    """Who serves the slot of each partition. `prefixes` are those of the partitions, each with its tag."""

    recheck_s = float("inf")  # a node that is no longer the right one says so itself

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
        """In random order, so that one node with an old view does not mislead for ever; the failed one last."""
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
    """First slot, last slot and primary; a node that does not know its own name leaves it out."""
    first, last, primary = entry[:3]
    host = (primary[0] or b"").decode()
    return int(first), int(last), RedisAddress(asked.host if host in ("", "?") else host, int(primary[1]))


def _owner(slot: int, ranges: Sequence[_Range]) -> RedisAddress | None:
    return next((owner for first, last, owner in ranges if first <= slot <= last), None)
