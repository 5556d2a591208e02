"""MaintenanceStore on Redis, the care of the servers and their data: start-up checks, lost data, health, and repair."""

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from ade.errors import StoreCorrupt, StoreError, StoreUnsupported
from ade.events.model import ALERT, Event
from ade.logs import Log
from ade.settings.sections import RedisSettings
from ade.stores.ports import StoreHealth
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.errors import ServerError, passes, translated
from ade.stores.redis.client.options import RedisAddress, TopologyKind
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import packed_event, pairs
from ade.stores.redis.invariants import broken_invariants
from ade.stores.redis.key_types import WrongKey, mend_wrong_keys, reported_wrong_keys
from ade.stores.redis.keys import LABELED
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.repair import RepairReport, health_check, repair
from ade.stores.redis.upgrade import SCHEMA, check_schema

# Checks of the servers before the store opens.


OLDEST_REDIS = (7, 0)
_SETTINGS = ("maxmemory-policy", "maxmemory", "appendonly")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """Properties of one primary, as `ade doctor` shows them. None: the server does not report the value."""

    address: str
    product: str  # Redis or Valkey
    version: str
    mode: str | None
    aof: bool | None
    maxmemory: int | None  # bytes; 0: no limit
    maxmemory_policy: str | None
    used_memory: int | None
    replicas: int | None
    warnings: tuple[str, ...] = ()


async def check_servers(link: RedisClient) -> Sequence[ServerFacts]:
    """Check every primary and the stored number of partitions. Raises StoreUnsupported with advice."""
    facts = [await examine(link, address) for address in await link.primaries()]
    for each in facts:
        check_server_version(each)
        _check_mode(each, link)
        _check_eviction(each)
        _check_persistence(each, link.settings.allow_volatile)
    await check_partitions(link)
    return facts


async def examine(link: RedisClient, address: RedisAddress) -> ServerFacts:
    """Read the properties of one server. Managed servers can forbid CONFIG, and some hide parts of INFO."""
    said, *settings = await link.ask_node(address, ("INFO",), *(("CONFIG", "GET", name) for name in _SETTINGS))
    if isinstance(said, ServerError) and passes(said):
        raise translated(said, address)
    info = {} if isinstance(said, ServerError) else _fields(said)
    policy, limit, log = (_setting(answer) for answer in settings)
    policy = info.get("maxmemory_policy") or policy
    limit = info.get("maxmemory") or limit
    aof = {"1": True, "0": False, "yes": True, "no": False}.get(info.get("aof_enabled") or log or "")
    replicas = _number(info.get("connected_slaves"))
    unknown = {"whether it evicts data (maxmemory-policy)": policy, "whether it keeps a log on disk (appendonly)": aof}
    return ServerFacts(
        address=str(address),
        product="Valkey" if "valkey_version" in info or info.get("server_name") == "valkey" else "Redis",
        version=info.get("valkey_version") or info.get("redis_version") or "",
        mode=info.get("redis_mode") or info.get("server_mode"),
        aof=aof,
        maxmemory=_number(limit),
        maxmemory_policy=policy,
        used_memory=_number(info.get("used_memory")),
        replicas=replicas,
        warnings=(
            *(f"{address} does not say {what}" for what, value in unknown.items() if value is None),
            *_too_few_replicas(address, replicas, link),
        ),
    )


def _too_few_replicas(address: RedisAddress, replicas: int | None, link: RedisClient) -> Sequence[str]:
    wanted = link.settings.replicas if link.is_strong else 0
    if replicas is None or replicas >= wanted:
        return ()
    return (f"{address} has {replicas} replicas, but durability is strong and wants {wanted}: nothing is confirmed",)


async def check_partitions(link: RedisClient) -> None:
    """Check or store the number of partitions. The first process fixes it: tasks are not found under another."""
    for partition, names in enumerate(link.names):
        meta = f"{names.prefix}meta"
        [stored] = await link.ask(partition, ("HGET", meta, "partitions"))
        if stored is None:  # write only then, so that readers can open a store on a server with full memory
            _, _, stored = await link.ask(
                partition,
                ("HSETNX", meta, LABELED, 1),
                ("HSETNX", meta, "partitions", link.partitions),
                ("HGET", meta, "partitions"),
            )
        if int(stored) != link.partitions:
            raise StoreUnsupported(
                f"this store was made with {int(stored)} partitions, but {link.partitions} are set. Set partitions to"
                f" {int(stored)}, or choose another prefix for a new store; nothing was changed"
            )


def check_server_version(facts: ServerFacts) -> None:
    """Raise StoreUnsupported for a server that lacks commands ADE needs."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", facts.version)[:2])
    if facts.product == "Redis" and numbers and numbers < OLDEST_REDIS:
        raise StoreUnsupported(f"{facts.address} is Redis {facts.version}; use Redis 7.0 or newer, or Valkey")


def _check_mode(facts: ServerFacts, link: RedisClient) -> None:
    if facts.mode == "sentinel":
        raise StoreUnsupported(f"{facts.address} is a sentinel; write redis+sentinel://{facts.address}/<service>")
    is_cluster, wanted = facts.mode == "cluster", link.place.kind is TopologyKind.CLUSTER
    if facts.mode is None or is_cluster == wanted:
        return
    if is_cluster:
        raise StoreUnsupported(f"{facts.address} is a node of a cluster; write redis+cluster:// in the store URL")
    raise StoreUnsupported(f"{facts.address} is not a node of a cluster; write redis:// in the store URL")


def _check_eviction(facts: ServerFacts) -> None:
    if facts.maxmemory_policy not in (None, "noeviction"):
        raise StoreUnsupported(
            f"{facts.address} evicts data when its memory is full (maxmemory-policy {facts.maxmemory_policy}), so"
            " tasks would be lost. Set maxmemory-policy to noeviction"
        )


def _check_persistence(facts: ServerFacts, allow_volatile: bool) -> None:
    if facts.aof is False and not allow_volatile:
        raise StoreUnsupported(
            f"{facts.address} loses acknowledged data when it restarts (appendonly no). Set appendonly to yes, or"
            " accept the loss with --allow-volatile"
        )


def _fields(said: bytes) -> Mapping[str, str]:
    lines = said.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _setting(answer: object) -> str | None:
    """The value in the response to CONFIG GET, if any."""
    if isinstance(answer, list) and len(answer) == 2:
        return str(answer[1].decode(errors="replace"))
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


# Data-loss detection: a server that lost its data responds as if nothing had happened.


_log_epochs = Log("ade.store")

Remedy = Callable[[], Awaitable[None]]


class DatasetGenerations:
    """Detect data loss by the epoch of each partition, a random name that is lost with the data."""

    def __init__(self, link: RedisClient, places: Partitions) -> None:
        self._link = link
        self._places = places
        self._known: dict[int, bytes] = {}
        self._remedies: list[Remedy] = []

    def when_lost(self, remedy: Remedy) -> None:
        """Register a callback that, after a loss, rewrites the data only this process has."""
        self._remedies.append(remedy)

    async def begin(self) -> None:
        """Read the epochs, and start one in each partition that has none."""
        for partition in self._places.all:
            if partition not in self._known:
                self._known[partition] = await self._current(partition, alert=None)

    async def check(self) -> list[int]:
        """Return partitions that lost their data since the last check. Every process reports each loss once."""
        if not self._known:
            await self.begin()
            return []
        lost = []

        async def ask(partition: int, patience_s: float | None) -> Any:
            command = ("HGET", f"{self._link.names[partition].prefix}meta", "epoch")
            return (await self._link.ask(partition, command, patience_s=patience_s))[0]

        for partition, epoch in (await self._link.reach.each(self._places.all, ask)).items():
            if (known := self._known.get(partition)) is None:  # it was unreachable when the store was opened
                self._known[partition] = await self._current(partition, alert=None)
            elif epoch != known:
                await self._report(partition, known)
                lost.append(partition)
        if lost:
            for remedy in self._remedies:
                await remedy()
        return lost

    async def _report(self, partition: int, known: bytes) -> None:
        [left] = await self._link.ask(partition, ("ZCARD", f"{self._link.names[partition].prefix}task:all"))
        server = self._link.where(partition)
        facts: dict[str, object] = {"partition": partition, "server": str(server), "tasks_left": int(left)}
        now = self._link.clock.now()
        payload = {"what": "data_lost", "epoch": known.decode(), **facts}
        alert = Event(type=ALERT, at=now, payload=payload)
        self._known[partition] = await self._current(partition, alert=alert, earlier=known)
        _log_epochs.error(
            "store_lost_its_data",
            **facts,
            hint="the server was emptied or restarted without its data. What it had acknowledged before is gone unless"
            " a backup is restored; work goes on with what is left",
        )

    async def _current(self, partition: int, alert: Event | None, earlier: bytes = b"") -> bytes:
        """The current epoch. The first process to find none starts one; the first that knew another logs the alert."""
        request = {
            "fresh": new_token(),
            "schema": SCHEMA,
            "alert": False if alert is None else packed_event(alert),
            "earlier": earlier.decode(),
        }
        return bytes(await self._link.run("dataset_generation", partition, request))


RESULTS_KEPT_MS = 7 * 86_400_000
IDLE_MS = 86_400_000  # unused streams and consumers are removed after this time
_FULL_LOOK_S = 300.0  # between full scans; longer if they take long
_TYPES_EVERY_S = 5.0  # between checks of the types of all keys; longer if they take long
_LOOK_SHARE = 0.02  # maximum share of time for full scans
_MUCH_MEMORY = 0.8
_MANY_ENTRIES = 1_000_000
_MUCH_LAG = 10_000
_STEP_SHOWN_MS = 86_400_000
_step = msgspec.msgpack.Decoder(tuple[int, int]).decode
_SAVING = {
    "rdb_last_bgsave_status": "BGSAVE",
    "aof_last_write_status": "AOF",
    "aof_last_bgrewrite_status": "AOF rewrite",
}
_log = Log("ade.store")


class RedisMaintenance:
    """Health, cleanup, invariants, and repair of a store."""

    has_keys = True

    def __init__(self, link: RedisClient, places: Partitions) -> None:
        self._link = link
        self._places = places
        self.epochs = DatasetGenerations(link, places)
        self._next_full_look = time.monotonic() + _FULL_LOOK_S
        self._next_types = 0.0

    async def check_invariants(self) -> list[str]:
        return await broken_invariants(self._link, self._places)

    async def reconcile(self) -> RepairReport:
        """Rebuild indexes, streams, and counters from the task records."""
        return await repair(self._link, self._places)

    async def check_writable(self) -> None:
        await check_schema(self._link)

    async def _check_keys(self) -> None:
        """Look for keys of a wrong type: at once when a call of this process met one, else as often as it is cheap."""
        began = time.monotonic()
        if not self._link.wrong_types and began < self._next_types:
            return
        self._link.wrong_types = False
        wrong: list[WrongKey] = []
        for partition in self._link.reach.near(self._places.all):
            wrong += await mend_wrong_keys(self._link, partition)
        ended = time.monotonic()
        self._next_types = ended + max(_TYPES_EVERY_S, (ended - began) / _LOOK_SHARE)
        if any(each.aside for each in wrong):
            await self.reconcile()

    async def checkpoint(self, *, only_keys: bool = False) -> None:
        """Detect lost data, repair what can be repaired, and remove unused keys."""
        await self._check_keys()
        if only_keys:
            return
        await self.epochs.check()
        try:
            found = await health_check(self._link, self._places)
        except StoreCorrupt as error:  # a key of the wrong type: the repair moves it aside
            found = [error.detail]
        if found:
            _log.warning("store_needs_attention", warning=f"something was lost: {'; '.join(found[:5])}")
        begun = time.monotonic()
        if found or begun >= self._next_full_look:
            await self.reconcile()
            ended = time.monotonic()
            self._next_full_look = ended + max(_FULL_LOOK_S, (ended - begun) / _LOOK_SHARE)
        for partition in [] if self._link.reach.is_away(0) else self._link.reach.near(self._places.all):
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
        await self._link.run("remove_unused", partition, request)

    async def health(self, *, thorough: bool = True) -> StoreHealth:
        addresses = await self._link.primaries()
        servers = [await examine(self._link, address) for address in addresses]
        reported = [
            sentence for partition in self._places.all for sentence in await reported_wrong_keys(self._link, partition)
        ]
        sizes, warnings = await self._sizes()
        warnings += reported
        facts: dict[str, object] = {
            "server": ", ".join(sorted({f"{each.product} {each.version}" for each in servers})),
            "mode": ", ".join(sorted({each.mode or "unknown" for each in servers})),
            "addresses": ", ".join(each.address for each in servers),
            "partitions": self._link.partitions,
            "schema": SCHEMA,
            "replicas": min((each.replicas or 0 for each in servers), default=0),
            "aof": all(each.aof for each in servers),
            "memory_mb": round(sum(each.used_memory or 0 for each in servers) / 2**20, 1),
            "max_memory_mb": round(sum(each.maxmemory or 0 for each in servers) / 2**20, 1) or "no limit",
            **sizes,
        }
        for address, each in zip(addresses, servers, strict=True):
            warnings += [*_server_warnings(each, self._link.settings), *await self._saving_warnings(address)]
        return StoreHealth(facts=facts, warnings=warnings)

    async def _saving_warnings(self, address: RedisAddress) -> list[str]:
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
            warnings += [*await self._group_warnings(partition), *await self._clock_warnings(partition)]
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
        """Consumer groups of other programs that lag, and task streams that no worker has ever read."""
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

    async def _clock_warnings(self, partition: int) -> list[str]:
        """A step of the clock within the last day."""
        [stored] = await self._link.ask(partition, ("HGET", f"{self._link.names[partition].prefix}meta", "stepped"))
        if stored is None:
            return []
        at, step_ms = _step(stored)
        if self._link.clock.now() - at > _STEP_SHOWN_MS:
            return []
        moment = datetime.fromtimestamp(at // 1000, UTC).isoformat()
        return [
            f"the clock of {self._link.where(partition)} was set forward by {step_ms / 1000:.0f} s at {moment}, or its"
            " machine was suspended: no lease was lost. Slew the clock of the server instead of setting it (chrony,"
            " `ntpd -x`)"
        ]

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


def _server_warnings(server: ServerFacts, settings: RedisSettings) -> list[str]:
    warnings = list(server.warnings)
    if server.maxmemory and server.used_memory and server.used_memory > _MUCH_MEMORY * server.maxmemory:
        share = 100 * server.used_memory / server.maxmemory
        warnings.append(f"{server.address} uses {share:.0f} % of its memory: at 100 % no new task is taken in")
    if server.aof is False and not settings.allow_volatile:
        warnings.append(f"{server.address} forgets everything when it restarts: set appendonly to yes")
    if server.maxmemory_policy not in (None, "noeviction"):
        warnings.append(f"{server.address} throws data away when memory is short: set maxmemory-policy to noeviction")
    return warnings
