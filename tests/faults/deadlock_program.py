"""One agent of a planted deadlock: `python -m tests.faults.deadlock_program <its part as JSON>`.

It takes what it holds in nested blocks, waits until a file with its name exists, then asks for more. If it is the one
who gives way, it lets go of everything and tries the same again. Each thing that happens is a line with the moment on
the clock that all processes share.
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from ade import Ade, DeadlockVictim, Settings, read
from ade.app.lock import Lock
from ade.errors import UpgradeDeadlock
from tests.domain import RedisSettings, StoreSettings
from tests.waiting import gate_opens

SETTINGS = Settings(store=StoreSettings(ballast_mb=0), redis=RedisSettings(allow_volatile=True))


class Part(msgspec.Struct, kw_only=True):
    """Resources are to be written; after `read `, to be read."""

    url: str = ""
    gates: str = ""  # the folder of these files
    name: str
    holds: list[list[str]]  # one list for each block, from the outermost in
    wants: list[str] = []
    upgrades: str | None = None  # instead of `wants`: this one of the outermost block


def say(what: str) -> None:
    print(what, time.monotonic(), flush=True)


async def go_through(app: Ade, part: Part, *, waits: bool) -> None:
    async with AsyncExitStack() as blocks:
        held = [await blocks.enter_async_context(lock(app, part, names)) for names in part.holds]
        if waits:
            say("holds")
            await gate_opens(Path(part.gates, part.name))
            say("asks")
        if part.upgrades is None:
            await blocks.enter_async_context(lock(app, part, part.wants))
        else:
            await held[0].upgrade(part.upgrades)
        say("through")


def lock(app: Ade, part: Part, names: list[str]) -> Lock:
    wanted = [read(name.removeprefix("read ")) if name.startswith("read ") else name for name in names]
    return app.lock(*wanted, owner=part.name)


async def main(part: Part) -> None:
    async with Ade(part.url, settings=SETTINGS) as app:
        try:
            await go_through(app, part, waits=True)
        except (DeadlockVictim, UpgradeDeadlock) as error:
            say(error.code)
            await go_through(app, part, waits=False)
    say("done")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Part)))
