"""Tells of the end of what runs in this process: at once if that can be, otherwise again until all is closed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from ade.core.inbox.errors import InvalidInbox, InvalidInboxItem
from ade.logs import Log

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0
_MOST_TRIES = 2_900  # about a day
log = Log("ade.agents")


class HasId(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=HasId)


class Teller(Generic[T]):
    """Belongs to one event loop. `tell` may fail for a while: the store is away, or the inbox full."""

    def __init__(self, tell: Callable[[T], Awaitable[None]] | None) -> None:
        self._tell = tell
        self._closing = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()

    async def tell(self, task: T) -> None:
        """Returns after the first try, so that nobody waits for others."""
        if not await self._is_told(task):
            job = asyncio.create_task(self._tell_later(task))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)

    async def close(self) -> None:
        """One more try for each that is left."""
        self._closing.set()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _tell_later(self, task: T) -> None:
        pause = _FIRST_PAUSE_S
        for _ in range(_MOST_TRIES):
            if self._closing.is_set():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
            if await self._is_told(task):
                return
            pause = min(pause * 2, _LONGEST_PAUSE_S)
        log.error("task.end_never_told", task_id=task.id)

    async def _is_told(self, task: T) -> bool:
        try:
            if self._tell is not None:
                await self._tell(task)
        except (InvalidInbox, InvalidInboxItem) as error:  # never
            log.error("task.end_never_told", task_id=task.id, error=str(error))
        except Exception as error:
            log.warning("task.end_not_told", task_id=task.id, error=str(error))
            return False
        return True
