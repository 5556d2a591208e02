"""A worker process for fault tests: `python -m tests.faults.worker_program <options as JSON>`.

Its handlers write a line to a file whenever they begin and end, so that a test can tell what was run, and how often.
"""

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import apsw
import msgspec

from ade.composition.stores import RENEWER, StoreLocation, open_stores
from ade.logs import configure
from ade.settings import Settings
from ade.settings.sections import RedisSettings, SweepSettings
from ade.tasks.handlers import Handler, HandlerMode, Registry
from ade.worker.backend import WorkerOptions
from ade.worker.context import Context, SyncContext
from ade.worker.instrumentation import WorkerProbe
from ade.worker.supervisor import StopSignals, serve
from ade.worker.watchdog import WatchdogSpec
from ade.worker.worker import WorkerService
from tests.domain import Definition, Signature
from tests.waiting import gate_opens, until


class Program(msgspec.Struct, kw_only=True):
    url: str
    lease_s: float = 1.0
    heartbeat_s: float = 0.3
    grace_s: float = 5.0
    guarded: bool = True
    sweep_s: float = 0.2
    concurrency: int = 100
    redis: RedisSettings = RedisSettings()
    die_at: str | None = None  # a point of the probe


def note(journal: str, what: str) -> None:
    """One line, written whole."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what} {os.getpid()}\n".encode())
    os.close(descriptor)


def block_until(file: str) -> None:
    """Wait in this thread until the file exists; called on the event loop, it blocks the loop."""
    until(Path(file).exists, file, 600)


async def quick(journal: str) -> None:
    note(journal, "ran")


async def repeat(journal: str, text: str, times: int, padding: str) -> str:
    note(journal, "ran")
    return text * times


async def traced(journal: str, seconds: float, ctx: Context) -> int:
    """Leaves its task and attempt in the journal."""
    run = f"{ctx.task_id}:{ctx.attempt}"
    note(journal, f"began:{run}")
    await asyncio.sleep(seconds)
    note(journal, f"ended:{run}")
    return ctx.attempt


async def wait_async(journal: str) -> None:
    note(journal, "began")
    try:
        await asyncio.Event().wait()
    finally:
        note(journal, "ended")


def wait_in_thread(journal: str, ctx: SyncContext) -> None:
    note(journal, "began")
    while not ctx.cancelled:
        threading.Event().wait(0.01)
    note(journal, "ended")
    ctx.raise_if_cancelled()


def until_gate_in_thread(journal: str, gate: str) -> str:
    """A plain function that goes on whatever it is told, until the file `gate` exists."""
    note(journal, "began")
    block_until(gate)
    note(journal, "ended")
    return "done"


def wait_in_process(journal: str) -> None:
    note(journal, "began")
    threading.Event().wait()


async def first_time_hangs(journal: str, ctx: Context) -> str:
    """The first run never ends; the next one does."""
    note(journal, "began")
    if ctx.attempt == 1:
        await asyncio.Event().wait()
    return f"attempt {ctx.attempt}"


async def slow_when_continued(journal: str, until: str, ctx: Context) -> str:
    """Ends once the file `until` exists."""
    note(journal, "began")
    if ctx.attempt == 1:
        await gate_opens(Path(until))
    note(journal, "ended")
    return f"attempt {ctx.attempt}"


async def pays_when_continued(journal: str, until: str, ctx: Context) -> str:
    """The first run pays as soon as the file `until` exists; the next one does not pay."""
    note(journal, "began")
    if ctx.attempt == 1:
        block_until(until)  # so that nothing else runs before the payment
        await ctx.once("order 7", note, journal, "paid")
    return f"attempt {ctx.attempt}"


async def hold_the_interpreter(journal: str, seconds: float, database: str | None = None) -> None:
    """C code that does not give the lock up: no other thread of this process can run.

    If that happens in the middle of a transaction, the database is held as well; with `database` it waits for a moment
    when it is not.
    """
    note(journal, "began")
    if database is not None:
        connection = apsw.Connection(database)
        connection.set_busy_timeout(10_000)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        connection.close()
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    note(journal, "ended")


async def block_the_loop(journal: str, seconds: float) -> None:
    note(journal, "began")
    time.sleep(seconds)  # noqa: ASYNC251  # the fault this handler is for
    note(journal, "ended")


async def block_between(journal: str, go: str, gate: str) -> None:
    """Blocks the event loop from when the file `go` exists until the file `gate` does."""
    note(journal, "began")
    await gate_opens(Path(go))
    note(journal, "blocked")
    block_until(gate)
    note(journal, "ended")


def crash(journal: str) -> None:
    note(journal, "began")
    os._exit(9)


HANDLERS = {
    HandlerMode.ASYNC: (
        quick,
        repeat,
        traced,
        wait_async,
        first_time_hangs,
        slow_when_continued,
        pays_when_continued,
        hold_the_interpreter,
        block_the_loop,
        block_between,
    ),
    HandlerMode.THREAD: (wait_in_thread, until_gate_in_thread, crash),
    HandlerMode.PROCESS: (wait_in_process,),
}


def registry() -> Registry:
    made = Registry()
    for mode, functions in HANDLERS.items():
        for function in functions:
            name = function.__name__
            made.add(
                Handler(
                    name=name,
                    function=function,
                    signature=Signature.of(function),
                    mode=mode,
                    definition=Definition(name=name),
                )
            )
    return made


async def main(signals: StopSignals) -> None:
    program = msgspec.json.decode(sys.argv[1], type=Program)
    settings = Settings(redis=program.redis)
    stores = await open_stores(program.url, settings)
    probe = WorkerProbe()
    if program.die_at is not None:
        probe.on(program.die_at, _die)
    place = msgspec.json.encode(StoreLocation(program.url, settings)).decode()
    runtime = WorkerService(
        stores,
        registry(),
        WorkerOptions(
            concurrency=program.concurrency,
            lease_s=program.lease_s,
            heartbeat_s=program.heartbeat_s,
            grace_s=program.grace_s,
            poll_s=0.2,
        ),
        settings=Settings(sweep=SweepSettings(interval_s=program.sweep_s)),
        guardian=WatchdogSpec(RENEWER, place) if program.guarded else None,
        probe=probe,
    )
    print(f"worker {runtime.id}", flush=True)
    handover = await runtime.run(signals.stop, signals.hurry)
    print(f"handed back {len(handover.handed_back)}", flush=True)
    await stores.close()


async def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    configure("json", "info")
    serve(main)
