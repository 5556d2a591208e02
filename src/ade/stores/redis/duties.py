"""Duties: what one process at a time does for all."""

from ade.stores.redis.link import Link
from ade.stores.redis.timing import Timing


async def take_duty(
    link: Link, timing: Timing, duty: str, holder: str, ttl_ms: int, *, patience_s: float | None = None
) -> bool:
    """Become (or stay) the one process that performs a duty for the next `ttl_ms`."""
    request = {"duty": duty, "holder": holder, "ttl_ms": ttl_ms}
    return bool(await link.run("duty", 0, {**timing(), **request}, patience_s=patience_s))
