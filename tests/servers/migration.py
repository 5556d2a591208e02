"""Moving one slot of a cluster from node to node, in steps between which a test can look."""

from collections.abc import Sequence

from tests.servers.ports import HOST
from tests.servers.server import HARNESS, Server

_TIMEOUT_MS = 5000


class Migration:
    """`begin`, then `move` until nothing is left, then `finish`. In between clients are sent to and fro with ASK."""

    def __init__(self, slot: int, source: Server, target: Server, primaries: Sequence[Server]) -> None:
        assert source is not target, f"slot {slot} is there already"
        self.slot = slot
        self.source = source
        self.target = target
        self._primaries = primaries

    def begin(self) -> None:
        self.target.command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", _id(self.source))
        self.source.command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", _id(self.target))

    def move(self, count: int) -> int:
        """Move up to this many keys; returns how many there were."""
        keys = self.source.command("CLUSTER", "GETKEYSINSLOT", self.slot, count)
        if keys:
            login = ("AUTH2", HARNESS, HARNESS) if self.source.options.closed else ()
            self.source.command("MIGRATE", HOST, self.target.port, "", 0, _TIMEOUT_MS, *login, "KEYS", *keys)
        return len(keys)

    def move_all(self, batch: int = 100) -> int:
        """Move until the source has no key of this slot left; none can appear there any more."""
        moved = 0
        while count := self.move(batch):
            moved += count
        return moved

    def finish(self) -> None:
        """Tell everybody. The target first: no slot is ever without an owner."""
        others = [node for node in self._primaries if node is not self.target and node is not self.source]
        new_owner = _id(self.target)
        for node in (self.target, self.source, *others):
            node.command("CLUSTER", "SETSLOT", self.slot, "NODE", new_owner)


def _id(node: Server) -> str:
    return str(node.command("CLUSTER", "MYID"))
