"""A worker on tasks that people approve: `python -m tests.faults.approval_program <options as JSON>`.

It dies at a chosen write to the store: right before it, or right after.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ade.app.ade import Ade
from ade.approvals.digest import Preview
from ade.logs import configure
from ade.settings import Settings
from ade.settings.sections import SweepSettings
from ade.stores.ports import Stores, TaskStore
from ade.worker.backend import WorkerOptions
from ade.worker.context import Context
from ade.worker.supervisor import StopSignals, serve
from ade.worker.worker import WorkerService
from tests.domain import open_stores
from tests.faults.worker_program import note
from tests.worker.harness import Replaced

app = Ade("memory://")
WRITES = ("claim", "add", "commit", "commit_each")


class Program(msgspec.Struct, kw_only=True):
    url: str
    die_at: int = 0  # the number of the write; 0: never
    before: bool = False  # claims count only once they have claimed something


@app.task(name="deploy")
async def deploy(journal: str, ctx: Context) -> None:
    await ctx.once(ctx.task_id, note, journal, "ran")


@deploy.preview
async def plan(journal: str) -> Preview:
    return Preview(changes=["all"], versions={"site": "v1"})


@app.task(name="careful")
async def careful(journal: str, ctx: Context) -> None:
    await ctx.once(f"{ctx.task_id} first", note, journal, "first")
    await ctx.hold("the rest")
    await ctx.once(f"{ctx.task_id} rest", note, journal, "ran")


@app.task(name="clumsy")
async def clumsy(journal: str, ctx: Context) -> None:
    await ctx.once(ctx.task_id, note, journal, "ran")
    raise RuntimeError("it broke")


@clumsy.rollback
async def tidy(journal: str, ctx: Context) -> None:
    await ctx.once(ctx.task_id, note, journal, "undone")


class _Doom:
    """Counts writes, and ends the process at one of them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._count = 0

    def watched(self, name: str, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watch(*args: Any, **kwargs: Any) -> Any:
            if name != "claim":
                self._count += 1
                self._die_if(self._program.before)
            answer = await write(*args, **kwargs)
            if name == "claim" and answer:
                self._count += 1
                self._die_if(not self._program.before)
            elif name != "claim":
                self._die_if(not self._program.before)
            return answer

        return watch

    def _die_if(self, is_meant: bool) -> None:
        if is_meant and self._count == self._program.die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def doomed(stores: Stores, program: Program) -> Stores:
    doom = _Doom(program)
    methods = {name: doom.watched(name, getattr(stores.tasks, name)) for name in WRITES}
    return replace(stores, tasks=cast(TaskStore, Replaced(stores.tasks, methods)))


async def main(signals: StopSignals) -> None:
    program = msgspec.json.decode(sys.argv[1], type=Program)
    stores = await open_stores(program.url)
    runtime = WorkerService(
        doomed(stores, program),
        app.registry,
        # Nobody waits for the leases of those who live, and so they may be slow.
        WorkerOptions(lease_s=3.0 if program.die_at else 30.0, heartbeat_s=0.3, grace_s=5.0, poll_s=0.1),
        settings=Settings(sweep=SweepSettings(interval_s=0.2)),
    )
    await runtime.run(signals.stop, signals.hurry)
    await stores.close()


if __name__ == "__main__":
    configure("json", "info")
    serve(main)
