"""Does the duties on a timer. Every process may; a short claim on each duty keeps it from being done N times."""

import asyncio
import time
from collections.abc import Callable, Sequence

from ade.core.errors import AdeError
from ade.logs import Log
from ade.ports import SweepStore
from ade.worker.duties import Duty

_BLOCKED_S = 1.0  # a store that takes so long to answer was held by somebody
log = Log("ade.sweep")


async def keep_up(store: SweepStore, duties: Sequence[Duty], holder: str) -> None:
    """Do all duties, each in its own rhythm, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for duty in duties:
            group.create_task(_repeat(store, duty, holder), name=f"ade-duty-{duty.name}")


async def do_duty(store: SweepStore, duty: Duty, holder: str, clock: Callable[[], float] = time.monotonic) -> int:
    """One round of a duty, if it is ours now. A failure is told and forgotten: the next round comes anyway."""
    return await try_duty(store, duty, holder, clock) or 0


async def try_duty(
    store: SweepStore, duty: Duty, holder: str, clock: Callable[[], float] = time.monotonic
) -> int | None:
    """The same for who wants to know how it went: None when it failed."""
    if not duty.may_run():
        return 0
    began = clock()
    try:
        if not await store.take_duty(duty.name, holder, round(duty.every_s * 1500)):
            return 0
        if clock() - began > _BLOCKED_S:
            # Whoever kept us waiting kept renewals waiting too: they come first, or live runs would be judged lost.
            log.warning("duty.postponed", duty=duty.name, waited_s=round(clock() - began, 1))
            return 0
        return await duty.perform()
    except AdeError as error:  # its sentence says what is wrong and what to do
        log.error("duty.failed", duty=duty.name, code=error.code, error=error.detail)
        return None
    except Exception:
        log.exception("duty.failed", duty=duty.name)
        return None


async def _repeat(store: SweepStore, duty: Duty, holder: str) -> None:
    while True:
        if not await do_duty(store, duty, holder):
            await asyncio.sleep(duty.every_s)
