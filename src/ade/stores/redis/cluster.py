"""A cluster: each partition is one slot, and any node tells which node serves it."""

import random
from collections.abc import Sequence
from typing import Any

from ade.stores.redis.nodes import Nodes
from ade.stores.redis.slots import key_slot
from ade.stores.redis.topologies import NotFound, look
from ade.stores.redis.urls import Address

_Range = tuple[int, int, Address]


class SlotMap:
    """Who serves the slot of each partition. `prefixes` are those of the partitions, each with its tag."""

    recheck_s = float("inf")  # a node that is no longer the right one says so itself

    def __init__(self, seeds: Sequence[Address], prefixes: Sequence[str]) -> None:
        self._seeds = list(seeds)
        self._slots = [key_slot(prefix.encode()) for prefix in prefixes]
        self._owners: list[Address | None] = [None] * len(prefixes)
        self._primaries: list[Address] = []

    def where(self, partition: int) -> Address | None:
        return self._owners[partition]

    def primaries(self) -> Sequence[Address]:
        return self._primaries

    def moved(self, partition: int, address: Address) -> None:
        self._owners[partition] = address

    async def learn(self, nodes: Nodes, failed: Address | None) -> None:
        said = []
        for address in self._sources(failed):
            try:
                ranges = await _slots_known_to(address, nodes)
            except NotFound as error:
                said.append(str(error))
                continue
            self._owners = [_owner(slot, ranges) for slot in self._slots]
            self._primaries = sorted({owner for _, _, owner in ranges})
            return
        raise NotFound(f"no node of the cluster tells who serves which slots: {'; '.join(said)}")

    def _sources(self, failed: Address | None) -> list[Address]:
        """In random order, so that one node with an old view does not mislead for ever; the failed one last."""
        known = list({*self._primaries, *self._seeds})
        random.shuffle(known)
        return sorted(known, key=lambda address: address == failed)


async def _slots_known_to(address: Address, nodes: Nodes) -> list[_Range]:
    answer = await look(nodes.server(address), ("CLUSTER", "SLOTS"))
    ranges = [_range(entry, asked=address) for entry in answer]
    if not ranges:
        raise NotFound(f"{address} knows no slots")
    return ranges


def _range(entry: list[Any], asked: Address) -> _Range:
    """First slot, last slot and primary; a node that does not know its own name leaves it out."""
    first, last, primary = entry[:3]
    host = (primary[0] or b"").decode()
    return int(first), int(last), Address(asked.host if host in ("", "?") else host, int(primary[1]))


def _owner(slot: int, ranges: Sequence[_Range]) -> Address | None:
    return next((owner for first, last, owner in ranges if first <= slot <= last), None)
