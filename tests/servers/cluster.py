"""A real cluster on loopback: three primaries, each with or without a replica."""

from functools import partial
from typing import Any, Self

import redis

from tests.servers.binaries import Binary
from tests.servers.blocks import Startable
from tests.servers.migration import Migration
from tests.servers.ports import BUS_OFFSET, HOST
from tests.servers.proxy import Proxy
from tests.servers.server import PLAIN, Options, Server
from tests.servers.waiting import until

SLOTS = 16_384


class Node(Server):
    """One member of a cluster; clients may be told to reach it through a proxy."""

    def __init__(self, binary: Binary, options: Options, node_timeout_ms: int, proxied: bool) -> None:
        super().__init__(binary, options)
        self.proxy = Proxy(self.port) if proxied else None
        lines = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": str(node_timeout_ms),
            "cluster_announce_ip": HOST,
            # A replica stays with its primary, so that a test knows who follows whom.
            "cluster_allow_replica_migration": "no",
        }
        if self.proxy is not None:
            lines["cluster_announce_port"] = str(self.proxy.start().port)
        self.options = options.plus(**lines)

    @property
    def public_address(self) -> str:
        """Where clients find it."""
        return self.address if self.proxy is None else self.proxy.address

    @property
    def id(self) -> str:
        return str(self.command("CLUSTER", "MYID"))

    def knows(self, other: str) -> bool:
        return other in str(self.command("CLUSTER", "NODES"))

    def state(self) -> dict[str, str]:
        """What CLUSTER INFO says, nothing while it is down."""
        try:
            answer = self.command("CLUSTER", "INFO", timeout_s=0.5)
        except redis.RedisError:
            return {}
        return dict(answer) if isinstance(answer, dict) else dict(line.split(":", 1) for line in answer.split())

    def is_primary(self) -> bool:
        return bool(self.info("replication")["role"] == "master")

    def follows_well(self) -> bool:
        """A primary, or a replica that is in touch with its primary."""
        replication = self.info("replication")
        return bool(replication["role"] == "master" or replication["master_link_status"] == "up")

    def owners(self) -> dict[int, str]:
        """First slot of every range -> address of the primary that owns it, as this node believes."""
        answer: list[Any] = self.command("CLUSTER", "SLOTS")
        return {slots[0]: f"{slots[2][0]}:{slots[2][1]}" for slots in answer}

    def close(self) -> None:
        super().close()
        if self.proxy is not None:
            self.proxy.close()


class Cluster(Startable):
    """`with Cluster(binary, replicas=1) as cluster: ...`; the first of `nodes` start as primaries, by slots."""

    def __init__(
        self,
        binary: Binary,
        options: Options = PLAIN,
        *,
        primaries: int = 3,
        replicas: int = 0,
        node_timeout_ms: int = 1500,
        proxied: bool = False,
    ) -> None:
        if options.tls:
            raise ValueError("a cluster with TLS is not offered here: its nodes would not trust each other")
        self.binary = binary
        self._primaries = primaries
        self.nodes: list[Node] = []
        try:
            for _ in range(primaries * (1 + replicas)):
                self.nodes.append(Node(binary, options, node_timeout_ms, proxied))
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"redis+cluster://{self.nodes[0].login}{','.join(node.public_address for node in self.nodes)}"

    @property
    def alive(self) -> bool:
        return all(node.alive for node in self.nodes)

    def start(self) -> Self:
        """Up, all slots served and all replicas in step when this returns; servers themselves wait two seconds."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        self._assign_slots()
        self._introduce()
        self._attach_replicas()
        self.wait_ok()
        return self

    def wait_ok(self) -> None:
        """Wait until every running node says that the cluster works, and replicas are in touch."""
        running = [node for node in self.nodes if node.alive]
        until(lambda: all(node.state().get("cluster_state") == "ok" for node in running), "cluster_state:ok")
        until(lambda: all(node.follows_well() for node in running), "replicas to be in touch with their primaries")
        self.wait_agreed()

    def wait_agreed(self) -> None:
        """Wait until all running nodes name the same owner for every slot."""
        running = [node for node in self.nodes if node.alive]
        until(lambda: len({str(sorted(node.owners().items())) for node in running}) == 1, "one view of all slots")

    def primaries(self) -> list[Node]:
        """The running primaries, as they see themselves."""
        return [node for node in self.nodes if node.alive and node.is_primary()]

    def replica_of(self, primary: Node) -> Node:
        """A running replica of this primary."""
        for node in self.nodes:
            if node is not primary and node.alive:
                replication = node.info("replication")
                if str(replication.get("master_port")) == primary.public_address.rpartition(":")[2]:
                    return node
        raise LookupError(f"{primary} has no running replica")

    def slot_of(self, key: str) -> int:
        return int(self._running().command("CLUSTER", "KEYSLOT", key))

    def owner_of(self, slot: int) -> Node:
        """The primary that serves this slot now."""
        owners = self._running().owners()
        address = owners[max(first for first in owners if first <= slot)]
        return next(node for node in self.nodes if node.public_address == address)

    def flush(self) -> None:
        """Forget all data on every primary."""
        for node in self.primaries():
            node.flush()

    def kill_primary(self, slot: int = 0) -> Node:
        """Kill the primary that serves this slot; it is returned."""
        victim = self.owner_of(slot)
        victim.kill()
        return victim

    def wait_promoted(self, slot: int, instead_of: Node) -> Node:
        """Wait until another node serves the slot and the cluster works again; that node is returned."""
        until(lambda: self.owner_of(slot) is not instead_of, f"another owner of slot {slot}")
        self.wait_ok()
        return self.owner_of(slot)

    def failover(self, slot: int = 0) -> Node:
        """Swap the primary of this slot with its replica, without a crash; the new primary is returned."""
        primary = self.owner_of(slot)
        self.replica_of(primary).command("CLUSTER", "FAILOVER")
        return self.wait_promoted(slot, instead_of=primary)

    def restart(self, node: Node) -> None:
        """Bring a node back and wait until the cluster has taken it in."""
        node.restart()
        until(lambda: not self._suspects(node), f"nobody to hold {node} for dead")
        self.wait_ok()

    def migration(self, slot: int, target: Node) -> Migration:
        """The steps of moving a slot, to be taken one by one."""
        return Migration(slot, self.owner_of(slot), target, self.primaries())

    def migrate_slot(self, slot: int, target: Node) -> int:
        """Move a slot with its keys while clients go on; returns how many keys were moved."""
        migration = self.migration(slot, target)
        migration.begin()
        moved = migration.move_all()
        migration.finish()
        self.wait_agreed()
        return moved

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def _running(self) -> Node:
        return next(node for node in self.nodes if node.alive)

    def _suspects(self, node: Node) -> bool:
        suspected = f"{node.public_address}@{node.port + BUS_OFFSET}"
        others = [other for other in self.nodes if other.alive and other is not node]
        lines = [line for other in others for line in str(other.command("CLUSTER", "NODES")).splitlines()]
        return any(suspected in line and "fail" in line for line in lines)

    def _assign_slots(self) -> None:
        for number in range(self._primaries):
            first, end = (SLOTS * edge // self._primaries for edge in (number, number + 1))
            self.nodes[number].command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for epoch, node in enumerate(self.nodes, 1):  # distinct from the start: nobody has to give way later
            node.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)

    def _introduce(self) -> None:
        """Each to each: quicker than waiting for gossip."""
        for number, node in enumerate(self.nodes):
            for other in self.nodes[:number]:
                node.command("CLUSTER", "MEET", HOST, other.port, other.port + BUS_OFFSET)
        count = str(len(self.nodes))
        until(lambda: all(node.state()["cluster_known_nodes"] == count for node in self.nodes), "nodes to meet")

    def _attach_replicas(self) -> None:
        for number, replica in enumerate(self.nodes[self._primaries :]):
            primary = self.nodes[number % self._primaries].id
            until(partial(replica.knows, primary), f"{replica} to meet its primary")
            replica.command("CLUSTER", "REPLICATE", primary)
