"""Fills a store with a bit of everything; run with the code of an old version to make a fixture of its schema.

    PYTHONPATH=<old checkout>/src python make_fixture.py URL

The features that the old version does not have yet are left out. The program ends as if it was killed, in the middle of
a run, with a lock.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from ade import Ade, Context

socket.gethostname = lambda: "machine"  # fixtures name no real one
URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"
ade = Ade(URL)


@ade.task
async def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}!"


@ade.task(max_attempts=1)
async def fail(reason: str) -> None:
    """Fail, and become a dead letter."""
    raise ValueError(reason)


@ade.task
async def stay(ctx: Context, seconds: float) -> None:
    """Run until the process ends."""
    await ctx.progress(0.5)
    running.set()
    await asyncio.wait_for(asyncio.Event().wait(), seconds)


@ade.task
async def pay(ctx: Context, amount: int) -> int:
    """Have a side effect that happens once."""

    async def charge() -> int:
        return amount

    paid: int = await ctx.once("charge", charge)
    return paid


@ade.cron("0 3 * * *")
async def nightly() -> None:
    """Run every night."""


running, locked = asyncio.Event(), asyncio.Event()


def command(*arguments: str, text: str = "") -> str:
    """Run a command of the old version and return its output; one that it does not have changes nothing."""
    environment = {**os.environ, "ADE_STORE__URL": URL, "ADE_REDIS__ALLOW_VOLATILE": "true"}
    line = [sys.executable, "-m", "ade.cli", *arguments]
    done = subprocess.run(line, env=environment, check=False, capture_output=True, text=True, input=text)
    if done.returncode:
        print(arguments, done.stderr.strip().splitlines()[-1:], file=sys.stderr)
    return done.stdout.strip()


def use_commands() -> None:
    """Write what has no Python interface."""
    command("queues", "pause", "slow", "--new")
    command("agents", "register", "coder", "--max-tasks", "3")
    command("users", "add", "rita", "--role", "approver", "--password-stdin", text="correct horse battery staple\n")
    draft = command("draft", "greet", "name=Barbara", "--as", "rita")
    waiting = command("draft", "greet", "name=Radia", "--as", "rita")
    if draft and waiting:
        command("submit", waiting.splitlines()[0].split()[0], "--as", "rita")
    command("inbox", "send", "talk", "hello")


async def hold_lock() -> None:
    """Take a lock and keep it."""
    async with ade.lock("db:main"):
        locked.set()
        await asyncio.Event().wait()


async def fill() -> None:
    """Enqueue tasks that end up in different statuses, and wait until they have."""
    await ade.open()
    ended = [await greet.enqueue("Ada"), await pay.enqueue(7)]
    failed = await fail.enqueue("no such card")
    later = datetime.now(UTC) + timedelta(days=3650)
    delayed = await greet.with_options(key="greet-later", run_at=later, tags=["night"], priority=1).enqueue("Grace")
    await greet.with_options(after=[delayed]).enqueue("Edsger")
    cancelled = await greet.with_options(run_at=later).enqueue("nobody")
    await cancelled.cancel()
    await stay.enqueue(600)
    worker = asyncio.create_task(ade.work(asyncio.Event()))
    for handle in ended:
        await handle.result(timeout=20)
    with contextlib.suppress(Exception):
        await failed.result(timeout=20)
    await asyncio.wait_for(running.wait(), 20)
    if hasattr(ade, "lock"):
        holding = asyncio.create_task(hold_lock())
        await asyncio.wait_for(locked.wait(), 20)
        assert not holding.done()
    await asyncio.to_thread(use_commands)
    assert not worker.done()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(fill())
