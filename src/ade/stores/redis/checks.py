"""What is checked before a server is trusted with work, and what it is like."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ade.core.errors import StoreUnsupported
from ade.stores.redis.failures import passes, translated
from ade.stores.redis.link import Link
from ade.stores.redis.urls import Address, Kind
from ade.stores.redis.wire import ServerError

OLDEST_REDIS = (7, 0)
_SETTINGS = ("maxmemory-policy", "maxmemory", "appendonly")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One primary, as `doctor` shows it. None: the server does not say."""

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


async def check_servers(link: Link) -> Sequence[ServerFacts]:
    """Check every primary and the stored number of partitions. Raises StoreUnsupported with what to do."""
    facts = [await examine(link, address) for address in await link.primaries()]
    for each in facts:
        _check_version(each)
        _check_mode(each, link)
        _check_eviction(each)
        _check_persistence(each, link.options.allow_volatile)
    await check_partitions(link)
    return facts


async def examine(link: Link, address: Address) -> ServerFacts:
    """What one server says of itself. Managed servers may forbid CONFIG, and some hide parts of INFO."""
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


def _too_few_replicas(address: Address, replicas: int | None, link: Link) -> Sequence[str]:
    wanted = link.options.replicas if link.is_strong else 0
    if replicas is None or replicas >= wanted:
        return ()
    return (f"{address} has {replicas} replicas, but durability is strong and wants {wanted}: nothing is confirmed",)


async def check_partitions(link: Link) -> None:
    """The number of partitions is settled by whoever comes first: tasks would not be found under another."""
    for partition, names in enumerate(link.names):
        meta = f"{names.prefix}meta"
        [stored] = await link.ask(partition, ("HGET", meta, "partitions"))
        if stored is None:  # only then is it written: a server without memory to spare must not keep readers out
            _, stored = await link.ask(
                partition, ("HSETNX", meta, "partitions", link.partitions), ("HGET", meta, "partitions")
            )
        if int(stored) != link.partitions:
            raise StoreUnsupported(
                f"this store was made with {int(stored)} partitions, but {link.partitions} are set. Set partitions to"
                f" {int(stored)}, or choose another prefix for a new store; nothing was changed"
            )


def _check_version(facts: ServerFacts) -> None:
    numbers = tuple(int(part) for part in re.findall(r"\d+", facts.version)[:2])
    if facts.product == "Redis" and numbers and numbers < OLDEST_REDIS:
        raise StoreUnsupported(f"{facts.address} is Redis {facts.version}; use Redis 7.0 or newer, or Valkey")


def _check_mode(facts: ServerFacts, link: Link) -> None:
    if facts.mode == "sentinel":
        raise StoreUnsupported(f"{facts.address} is a sentinel; write redis+sentinel://{facts.address}/<service>")
    is_cluster, wanted = facts.mode == "cluster", link.place.kind is Kind.CLUSTER
    if facts.mode is None or is_cluster == wanted:
        return
    if is_cluster:
        raise StoreUnsupported(f"{facts.address} is a node of a cluster; write redis+cluster:// in the store URL")
    raise StoreUnsupported(f"{facts.address} is not a node of a cluster; write redis:// in the store URL")


def _check_eviction(facts: ServerFacts) -> None:
    if facts.maxmemory_policy not in (None, "noeviction"):
        raise StoreUnsupported(
            f"{facts.address} throws data away when its memory is full (maxmemory-policy {facts.maxmemory_policy}), so"
            " tasks would be lost. Set maxmemory-policy to noeviction"
        )


def _check_persistence(facts: ServerFacts, allow_volatile: bool) -> None:
    if facts.aof is False and not allow_volatile:
        raise StoreUnsupported(
            f"{facts.address} forgets what it acknowledged when it restarts (appendonly no). Set appendonly to yes, or"
            " accept the loss with --allow-volatile"
        )


def _fields(said: bytes) -> Mapping[str, str]:
    lines = said.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _setting(answer: object) -> str | None:
    """The value in the answer to CONFIG GET, if there is one."""
    if isinstance(answer, list) and len(answer) == 2:
        return str(answer[1].decode(errors="replace"))
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
