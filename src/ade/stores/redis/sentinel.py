"""A primary watched by sentinels, who name another when it is gone."""

from collections.abc import Sequence

from ade.stores.redis.nodes import Nodes
from ade.stores.redis.topologies import NotFound, look
from ade.stores.redis.urls import Address


class WatchedServer:
    """Whom the sentinels name, if it says itself that it is a primary."""

    # A primary that was replaced goes on taking writes, which will be lost, until the sentinels reach it.
    recheck_s = 1.0

    def __init__(self, sentinels: Sequence[Address], service: str) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._primary: Address | None = None

    def where(self, partition: int) -> Address | None:
        return self._primary

    def primaries(self) -> Sequence[Address]:
        return [] if self._primary is None else [self._primary]

    def moved(self, partition: int, address: Address) -> None:
        """Only a node of a cluster says so, and the start-up check refuses those."""

    async def learn(self, nodes: Nodes, failed: Address | None) -> None:
        said = []
        for sentinel in list(self._sentinels):
            try:
                self._primary = await self._named_by(sentinel, nodes)
            except NotFound as error:
                said.append(str(error))
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)  # the first to be asked next time
            return
        raise NotFound(f"no sentinel knows a working primary of {self._service}: {'; '.join(said)}")

    async def _named_by(self, sentinel: Address, nodes: Nodes) -> Address:
        named = await look(nodes.sentinel(sentinel), ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))
        if named is None:
            raise NotFound(f"{sentinel} watches no service of this name")
        address = Address(named[0].decode(), int(named[1]))
        # Sentinels may still name the one that is gone, or already one that is not promoted yet.
        [role, *_] = await look(nodes.server(address), ("ROLE",), unless_forbidden=[b"master"])
        if role != b"master":
            raise NotFound(f"{address} is not a primary yet")
        return address
