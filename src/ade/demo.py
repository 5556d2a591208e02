"""A small demo app with working tasks: `ade up --app ade.demo:ade`."""

import asyncio
import math
import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from ade.app.ade import Ade
from ade.tasks.outcomes import Unrecoverable
from ade.worker.context import Context, SyncContext

ade = Ade()

_WORD = re.compile(r"[^\W\d_]+")
_TEXT = "One task, one lease, one result. What was accepted is done, and what failed is told."


@ade.task(timeout=60)
async def brew_tea(ctx: Context, kind: str = "green", minutes: float = 0.2) -> str:
    """An async task that takes some time and reports its progress."""
    steps = 10
    for step in range(steps):
        await ctx.progress([step, steps])
        await asyncio.sleep(minutes * 60 / steps)
    await ctx.log("the tea is ready", kind=kind)
    return f"a cup of {kind} tea"


@ade.task
def count_words(text: str, most: int = 5) -> dict[str, int]:
    """A plain function: it runs in a thread and does not block the event loop."""
    words = Counter(word.lower() for word in _WORD.findall(text))
    return dict(words.most_common(most))


@ade.task(cpu=True, timeout=120, concurrency=2)
def count_primes(below: int) -> int:
    """A CPU-bound task: it runs in a separate process, at most two concurrently."""
    sieve = bytearray([1]) * max(below, 2)
    sieve[0:2] = b"\0\0"
    for number in range(2, math.isqrt(len(sieve) - 1) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, len(sieve), number)))
    return sum(sieve[:below])


@ade.task(max_attempts=5, queue="parcels")
async def deliver_parcel(ctx: Context, street: str, attempts_needed: int = 3) -> str:
    """Fails at first and is retried with growing delays."""
    if ctx.attempt < attempts_needed:
        raise ConnectionError(f"nobody opened the door in {street}")
    return f"delivered in {street} at attempt {ctx.attempt}"


@ade.task(queue="parcels")
def return_parcel(ctx: SyncContext, street: str) -> None:
    """Cannot succeed and raises Unrecoverable, so it becomes a dead letter immediately."""
    ctx.log("the street was not found", street=street)
    raise Unrecoverable(f"there is no street named {street!r}")


@ade.cron("* * * * *")
async def tell_the_time(ctx: Context) -> str:
    """Runs every minute by a cron schedule."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    await ctx.log(f"it is {now}")
    return now


async def seed() -> int:
    """Enqueue example tasks in a new store. Returns their number."""
    tea = brew_tea.call(kind="mint")
    words = count_words.call(_TEXT)
    calls: list[Any] = [
        tea,
        words,
        count_primes.call(3_000_000),
        deliver_parcel.call("Station Road"),
        return_parcel.call("Nowhere Lane"),
        count_words.with_options(after=[tea, words], description="after the tea and the first count").call("done"),
        brew_tea.with_options(delay=60, tags=["later"], priority=2).call(kind="black"),
    ]
    return len(await ade.enqueue_many(calls))
