"""Which server holds a partition now: a fixed one, the one the sentinels name, or a node of the cluster."""

from collections.abc import Sequence
from typing import Any, Protocol

from ade.stores.redis.failures import FAILURES, code_of, passes, reason, translated
from ade.stores.redis.nodes import Node, Nodes
from ade.stores.redis.urls import Address
from ade.stores.redis.wire import Command

_LOOK_S = 1.0  # for each question


class NotFound(Exception):
    """No server could be found now; the message says why. It may be there at the next look."""


class Topology(Protocol):
    """What is known is shared by all event loops; each asks over connections of its own."""

    recheck_s: float  # how long what was learnt may be used without another look, while there is traffic

    def where(self, partition: int) -> Address | None:
        """The primary to send to, None while it is not known."""

    def primaries(self) -> Sequence[Address]:
        """Every primary known."""

    def moved(self, partition: int, address: Address) -> None:
        """A server said where the partition is."""

    async def learn(self, nodes: Nodes, failed: Address | None) -> None:
        """Find out anew, best not from the server that has just failed. Raises NotFound."""


class FixedServer:
    """One server. If it is away, it comes back at the same address or not at all."""

    recheck_s = float("inf")

    def __init__(self, address: Address) -> None:
        self._address = address

    def where(self, partition: int) -> Address:
        return self._address

    def primaries(self) -> Sequence[Address]:
        return [self._address]

    def moved(self, partition: int, address: Address) -> None:
        """Only a node of a cluster says so, and the start-up check refuses those."""

    async def learn(self, nodes: Nodes, failed: Address | None) -> None:
        """There is nothing to find out."""


async def look(node: Node, question: Command, *, unless_forbidden: Any = None) -> Any:
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
            raise NotFound(f"{node.address} does not answer ({reason(answer)})") from answer
        raise translated(answer, node.address) from answer
    return answer
