"""A small app to look at ADE with: `ade up --app ade.demo:ade`. Its tasks are small, but they do what they say."""

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
    """An async task that takes its time and tells how far it is."""
    steps = 10
    for step in range(steps):
        await ctx.progress([step, steps])
        await asyncio.sleep(minutes * 60 / steps)
    await ctx.log("the tea is ready", kind=kind)
    return f"a cup of {kind} tea"


@ade.task
def count_words(text: str, most: int = 5) -> dict[str, int]:
    """A plain function: it runs in a thread and blocks nobody."""
    words = Counter(word.lower() for word in _WORD.findall(text))
    return dict(words.most_common(most))


@ade.task(cpu=True, timeout=120, concurrency=2)
def count_primes(below: int) -> int:
    """Real computing: it runs in a process of its own, at most two at once."""
    sieve = bytearray([1]) * max(below, 2)
    sieve[0:2] = b"\0\0"
    for number in range(2, math.isqrt(len(sieve) - 1) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, len(sieve), number)))
    return sum(sieve[:below])


@ade.task(max_attempts=5, queue="parcels")
async def deliver_parcel(ctx: Context, street: str, attempts_needed: int = 3) -> str:
    """Nobody is at home at first, so it fails and is tried again with growing delays."""
    if ctx.attempt < attempts_needed:
        raise ConnectionError(f"nobody opened the door in {street}")
    return f"delivered in {street} at attempt {ctx.attempt}"


@ade.task(queue="parcels")
def return_parcel(ctx: SyncContext, street: str) -> None:
    """It can never succeed and says so, so it becomes a dead letter at once."""
    ctx.log("the street was not found", street=street)
    raise Unrecoverable(f"there is no street named {street!r}")


@ade.cron("* * * * *")
async def tell_the_time(ctx: Context) -> str:
    """Every minute, by a schedule."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    await ctx.log(f"it is {now}")
    return now


async def seed() -> int:
    """Give a new store something to do. Answers how many tasks there are."""
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
