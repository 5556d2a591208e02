"""Duties: what one process at a time does for all."""

from typing import Any

import msgspec

from ade.stores.redis.link import Link
from ade.stores.redis.records import pairs
from ade.stores.redis.timing import Timing

_kept = msgspec.msgpack.Decoder(list[Any]).decode  # holder, until, for how long


async def take_duty(
    link: Link, timing: Timing, duty: str, holder: str, ttl_ms: int, *, patience_s: float | None = None
) -> bool:
    """Become (or stay) the one process that performs a duty for the next `ttl_ms`."""
    request = {"duty": duty, "holder": holder, "ttl_ms": ttl_ms}
    return bool(await link.run("duty", 0, {**timing(), **request}, patience_s=patience_s))


async def taken_duties(link: Link) -> dict[str, int]:
    """Until when each is taken, by the steady clock."""
    [flat] = await link.ask(0, ("HGETALL", f"{link.names[0].prefix}duty"))
    return {name.decode(): int(_kept(packed)[1]) for name, packed in sorted(pairs(flat))}
