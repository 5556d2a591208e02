"""Wait until tasks are final. All who wait on one event loop share one look at the store."""

import asyncio
from collections.abc import Sequence

from ade.errors import AdeError, WaitTimeout
from ade.stores.ports import DONE, Stores
from ade.tasks.model import Task
from ade.tasks.service import get, unknown

_SLOW_POLL_S = 1.0  # finds what was finished by a process whose hint got lost
_PAUSE_PER_WAITER_S = 0.000_05  # a thousand waiters look at most every 50 ms, one waiter at every hint
_PAGE_WAITING = 500


class CompletionWatcher:
    """Belongs to one event loop. Looks only while somebody waits."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._waiting: dict[str, list[asyncio.Future[Task]]] = {}
        self._look: asyncio.Task[None] | None = None

    async def wait(self, task_id: str, timeout: float | None = None) -> Task:
        """The task once it is final. Raises WaitTimeout and UnknownTask."""
        task = await get(self._stores, task_id)
        if task.is_final:
            return task
        future: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task_id, []).append(future)
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._look_until_done(), name="ade-finish-watch")
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise WaitTimeout(f"task {task_id} did not finish in {timeout:g} s; it goes on") from None
        finally:
            self._leave(task_id, future)

    def _leave(self, task_id: str, future: "asyncio.Future[Task]") -> None:
        futures = self._waiting.get(task_id, [])
        if future in futures:
            futures.remove(future)
        if not futures:
            self._waiting.pop(task_id, None)
        if not self._waiting and self._look is not None:
            self._look.cancel()
            self._look = None

    async def _look_until_done(self) -> None:
        try:
            while self._waiting:
                seen = self._stores.hints.generation(DONE)
                await self._answer(list(self._waiting))
                if self._waiting:
                    await self._stores.hints.wait(DONE, seen, _SLOW_POLL_S)
                    await asyncio.sleep(len(self._waiting) * _PAUSE_PER_WAITER_S)
        except AdeError as error:
            self._fail_all(error)
        finally:
            if asyncio.current_task() is self._look:
                self._look = None

    async def _answer(self, task_ids: Sequence[str]) -> None:
        for start in range(0, len(task_ids), _PAGE_WAITING):
            page = task_ids[start : start + _PAGE_WAITING]
            for task_id, task in zip(page, await self._stores.tasks.get(page), strict=True):
                if task is None:
                    self._settle(task_id, unknown(task_id))
                elif task.is_final:
                    self._settle(task_id, task)

    def _settle(self, task_id: str, answer: Task | AdeError) -> None:
        for future in self._waiting.pop(task_id, []):
            if future.done():
                continue
            if isinstance(answer, Task):
                future.set_result(answer)
            else:
                future.set_exception(answer)

    def _fail_all(self, error: AdeError) -> None:
        for task_id in list(self._waiting):
            self._settle(task_id, error)
