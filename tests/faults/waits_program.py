"""A worker process for planted deadlocks: `python -m tests.faults.waits_program STORE_URL`."""

import asyncio
import sys

from ade import Ade, Context
from tests.faults.deadlock_program import SETTINGS


def app_on(url: str) -> Ade:
    """Tasks that hold one thing and wait for another."""
    app = Ade(url, settings=SETTINGS)

    @app.task(name="leaf")
    async def leaf() -> str:
        return "done"

    @app.task(name="single", concurrency=1)
    async def single(ctx: Context, lock: str) -> str:
        async with ctx.lock(lock, namespace="east"):
            return "done"

    @app.task(name="parent", max_attempts=2)
    async def parent(ctx: Context, lock: str) -> str:
        """Hold a lock, and wait for a child that needs it; another attempt does without the lock."""
        if ctx.attempt > 1:
            return await (await ctx.enqueue(leaf)).result()
        async with ctx.lock(lock):
            return await (await ctx.enqueue(leaf.with_options(locks=[lock]))).result()

    @app.task(name="mixed", max_attempts=2)
    async def mixed(ctx: Context, lock: str) -> str:
        """Hold a lock that one `single` waits for, and wait for another one, which needs its place."""
        async with ctx.lock(lock, namespace="east"):
            await ctx.enqueue(single, lock)
            return await (await ctx.enqueue(single, f"{lock}:other")).result()

    return app


async def main(url: str) -> None:
    app = app_on(url)
    async with app, app.worker(concurrency=8):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
