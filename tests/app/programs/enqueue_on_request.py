"""Enqueue a task for each line read, and say whether the rules let it through; an idle time goes by before each.

The third argument says where: `loop` (an event loop), `thread` (a program without one), `fork` (a child of such one).
"""

import asyncio
import os
import sys

from ade import Ade
from ade.approvals.errors import Denied
from ade.composition.app_store import OpenStore
from ade.settings import Settings
from tests.approvals.rule_changes import after_idle_time
from tests.domain import RULES, RedisSettings, StoreSettings
from tests.servers.waiting import until

app = Ade(settings=Settings(store=StoreSettings(ballast_mb=0), redis=RedisSettings(allow_volatile=True)))


@app.task
async def work() -> None: ...


async def on_a_loop() -> None:
    opened = await app.open()
    await work.enqueue()
    await asyncio.to_thread(until_subscribed, opened)
    while await asyncio.to_thread(sys.stdin.readline):
        try:
            with after_idle_time(opened):
                await work.enqueue()
            print("accepted", flush=True)
        except Denied:
            print("denied", flush=True)


def without_a_loop(*, forks: bool) -> None:
    work.enqueue().wait()
    if forks and (child := os.fork()):
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    work.enqueue().wait()
    opened = app.portal.run(app.open())
    until_subscribed(opened)
    while sys.stdin.readline():
        try:
            with after_idle_time(opened):
                work.enqueue().wait()
            print("accepted", flush=True)
        except Denied:
            print("denied", flush=True)


def until_subscribed(opened: OpenStore) -> None:
    until(lambda: opened.stores.wakeups.lag_s(RULES) < 1, "a subscription")
    print("ready", flush=True)


if __name__ == "__main__":
    app.url = sys.argv[1]
    if sys.argv[2] == "loop":
        asyncio.run(on_a_loop())
    else:
        without_a_loop(forks=sys.argv[2] == "fork")
