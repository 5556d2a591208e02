"""UpkeepStore on Redis: health, housekeeping, and the invariants. What was lost is found and put back here too."""

import time
from collections.abc import AsyncIterator
from typing import Any

from ade.core.errors import StoreCorrupt, StoreError
from ade.logs import Log
from ade.ports import Health
from ade.stores.redis.checks import ServerFacts, examine
from ade.stores.redis.epochs import Epochs
from ade.stores.redis.invariants import broken_invariants
from ade.stores.redis.link import Link
from ade.stores.redis.options import RedisOptions
from ade.stores.redis.places import Partitions
from ade.stores.redis.reconcile import Report, reconcile, symptoms
from ade.stores.redis.records import pairs
from ade.stores.redis.timing import Timing
from ade.stores.redis.urls import Address

RESULTS_KEPT_MS = 7 * 86_400_000
IDLE_MS = 86_400_000  # what nobody has used for so long is forgotten
_FULL_LOOK_S = 300.0  # between looks at everything, and longer where they take long
_LOOK_SHARE = 0.02  # of the time may be spent on that
_MUCH_MEMORY = 0.8
_MANY_ENTRIES = 1_000_000
_MUCH_LAG = 10_000
_SAVING = {
    "rdb_last_bgsave_status": "BGSAVE",
    "aof_last_write_status": "AOF",
    "aof_last_bgrewrite_status": "AOF rewrite",
}
_log = Log("ade.store")


class RedisUpkeep:
    def __init__(self, link: Link, places: Partitions, timing: Timing) -> None:
        self._link = link
        self._places = places
        self._timing = timing
        self.epochs = Epochs(link, places, timing)
        self._next_full_look = time.monotonic() + _FULL_LOOK_S

    async def check_invariants(self) -> list[str]:
        return await broken_invariants(self._link, self._places)

    async def reconcile(self) -> Report:
        """Put back from the records what was lost around them."""
        return await reconcile(self._link, self._places, self._timing)

    async def checkpoint(self) -> None:
        """Notice lost data, put back what can be put back, forget what nobody needs."""
        await self.epochs.check()
        try:
            found = await symptoms(self._link, self._places)
        except StoreCorrupt as error:  # a key of the wrong type: mending moves it out of the way
            found = [error.detail]
        if found:
            _log.warning("store_needs_attention", warning=f"something was lost: {'; '.join(found[:5])}")
        begun = time.monotonic()
        if found or begun >= self._next_full_look:
            await self.reconcile()
            ended = time.monotonic()
            self._next_full_look = ended + max(_FULL_LOOK_S, (ended - begun) / _LOOK_SHARE)
        for partition in self._places.all:
            await self._tidy(partition)

    async def _tidy(self, partition: int) -> None:
        names = self._link.names[partition]
        streams, known = (
            [f"{names.prefix}queue:back"],
            await self._link.ask(0, ("HKEYS", f"{self._link.names[0].prefix}workers")),
        )
        [lanes] = await self._link.ask(partition, ("HKEYS", f"{names.prefix}tally"))
        for queue in sorted({lane.decode().partition(":")[0] for lane in lanes}):
            streams += [f"{names.tasks}:{queue}:{priority}" for priority in range(10)]
        request = {
            "streams": streams,
            "known": [worker_id.decode() for worker_id in known[0]],
            "idle_ms": IDLE_MS,
            "results_ms": RESULTS_KEPT_MS,
        }
        await self._link.run("tidy", partition, {**self._timing(), **request})

    async def health(self, *, thorough: bool = True) -> Health:
        addresses = await self._link.primaries()
        servers = [await examine(self._link, address) for address in addresses]
        sizes, warnings = await self._sizes()
        facts: dict[str, object] = {
            "server": ", ".join(sorted({f"{each.product} {each.version}" for each in servers})),
            "mode": ", ".join(sorted({each.mode or "unknown" for each in servers})),
            "addresses": ", ".join(each.address for each in servers),
            "partitions": self._link.partitions,
            "replicas": min((each.replicas or 0 for each in servers), default=0),
            "aof": all(each.aof for each in servers),
            "memory_mb": round(sum(each.used_memory or 0 for each in servers) / 2**20, 1),
            "max_memory_mb": round(sum(each.maxmemory or 0 for each in servers) / 2**20, 1) or "no limit",
            **sizes,
        }
        for address, each in zip(addresses, servers, strict=True):
            warnings += [*_server_warnings(each, self._link.options), *await self._saving_warnings(address)]
        return Health(facts=facts, warnings=warnings)

    async def _saving_warnings(self, address: Address) -> list[str]:
        [said] = await self._link.ask_node(address, ("INFO", "persistence"))
        lines = said.decode(errors="replace").splitlines() if isinstance(said, bytes) else []
        state = dict(line.split(":", 1) for line in lines if ":" in line)
        return [
            f"the last {what} of {address} failed: look at the server's log and its disk"
            for field, what in _SAVING.items()
            if state.get(field, "ok") != "ok"
        ]

    async def _sizes(self) -> tuple[dict[str, object], list[str]]:
        sizes = dict.fromkeys(("tasks", "running", "events", "results", "dead_letters"), 0)
        warnings: list[str] = []
        for partition, names in enumerate(self._link.names):
            found = await self._link.ask(
                partition,
                ("ZCARD", f"{names.prefix}task:all"),
                ("ZCARD", f"{names.prefix}queue:leases"),
                ("XLEN", f"{names.prefix}events"),
                ("XLEN", names.results),
                ("XLEN", names.dlq),
            )
            for name, size in zip(sizes, found, strict=True):
                sizes[name] += int(size)
            warnings += await self._group_warnings(partition)
        warnings += [
            f"{sizes[name]:,} {what}"
            for name, what in (
                (
                    "events",
                    "entries are in the event log: let some reader of it come forward, or shorten its retention",
                ),
                ("results", "results wait for a group that does not read them: remove the group or let it read"),
                ("dead_letters", "dead letters lie there: replay or discard them"),
            )
            if sizes[name] > _MANY_ENTRIES
        ]
        return dict(sizes), warnings

    async def _group_warnings(self, partition: int) -> list[str]:
        """Groups of foreign readers that are behind, and streams of tasks that no worker has ever asked for."""
        names = self._link.names[partition]
        warnings: list[str] = []
        for key, name in ((names.results, "results"), (f"{names.prefix}events", "events")):
            warnings += [
                f"group {group[b'name'].decode()} of {name} is {group[b'lag']:,} entries behind"
                for group in await self._groups(partition, key)
                if int(group.get(b"lag") or 0) > _MUCH_LAG
            ]
        [levels] = await self._link.ask(partition, ("HGETALL", f"{names.prefix}queue:levels"))
        for level, count in pairs(levels):
            priority, _, queue = level.decode().partition(":")
            groups = await self._groups(partition, f"{names.tasks}:{queue}:{priority}") if int(count) > 0 else []
            if int(count) > 0 and names.group.encode() not in {group[b"name"] for group in groups}:
                warnings.append(
                    f"{int(count)} tasks wait in queue {queue} at priority {priority}; no worker has asked for them yet"
                )
        return warnings

    async def _groups(self, partition: int, key: str) -> list[dict[bytes, Any]]:
        if not (await self._link.ask(partition, ("EXISTS", key)))[0]:
            return []
        [groups] = await self._link.ask(partition, ("XINFO", "GROUPS", key))
        return [
            group if isinstance(group, dict) else dict(zip(group[::2], group[1::2], strict=True)) for group in groups
        ]

    def backup(self, target: str) -> AsyncIterator[tuple[int, int]]:
        raise StoreError(
            f"a Redis server keeps its own copies, so nothing was written to {target}. Let it write one with BGSAVE, or"
            " copy its append-only files (`redis-cli --rdb file` fetches a copy over the network); `ade archive` keeps"
            " finished tasks in files"
        )


def _server_warnings(server: ServerFacts, options: RedisOptions) -> list[str]:
    warnings = list(server.warnings)
    if server.maxmemory and server.used_memory and server.used_memory > _MUCH_MEMORY * server.maxmemory:
        share = 100 * server.used_memory / server.maxmemory
        warnings.append(f"{server.address} uses {share:.0f} % of its memory: at 100 % no new task is taken in")
    if server.aof is False and not options.allow_volatile:
        warnings.append(f"{server.address} forgets everything when it restarts: set appendonly to yes")
    if server.maxmemory_policy not in (None, "noeviction"):
        warnings.append(f"{server.address} throws data away when memory is short: set maxmemory-policy to noeviction")
    return warnings
