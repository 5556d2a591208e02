"""Which key another program has spoiled: a server says that a type is wrong, but not where."""

from collections.abc import Awaitable, Callable
from typing import Any

from ade.stores.redis.keys import ANY, KEYS, Names
from ade.stores.redis.wire import Command, ServerError

Ask = Callable[[list[Command]], Awaitable[list[Any]]]  # errors of the server stand among the answers


async def spoiled_keys(ask: Ask, names: Names) -> list[str]:
    """Sentences about keys that are not what they should be, among those that hold more than one task."""
    expected = {_key(family.pattern, names): family.type for family in KEYS if "<" not in family.pattern}
    expected |= await _by_queue(ask, names) | await _books(ask, names)
    found = await ask([("TYPE", key) for key in expected])
    return [
        f"{key} is a {kind.decode()} and should be a {wanted}"
        for (key, wanted), kind in zip(expected.items(), found, strict=True)
        if isinstance(kind, bytes) and kind.decode() not in (wanted, "none") and wanted != ANY
    ]


def _key(pattern: str, names: Names) -> str:
    return {"queue:results": names.results, "queue:dlq": names.dlq}.get(pattern, names.prefix + pattern)


async def _by_queue(ask: Ask, names: Names) -> dict[str, str]:
    """Streams and lines of the queues that the counters tell of, as far as those can be read."""
    sets = [("SMEMBERS", f"{names.prefix}{lanes}") for lanes in ("queue:lines", "queue:asking")]
    counted, *found = await ask([("HKEYS", f"{names.prefix}tally"), *sets])
    queues = set() if isinstance(counted, ServerError) else {each.decode().partition(":")[0] for each in counted}
    streams = {f"{names.tasks}:{queue}:{priority}": "stream" for queue in sorted(queues) for priority in range(10)}
    lines = [lane.decode() for lanes in found if not isinstance(lanes, ServerError) for lane in lanes]
    return streams | {f"{names.prefix}queue:line:{lane}": "zset" for lane in lines}


async def _books(ask: Ask, names: Names) -> dict[str, str]:
    """Books of locks, of all namespaces that are marked."""
    [marked] = await ask([("HKEYS", f"{names.prefix}lock:marks")])
    namespaces = [] if isinstance(marked, ServerError) else [each.decode() for each in marked]
    return {f"{names.prefix}lock:request:{namespace}": "hash" for namespace in namespaces}
