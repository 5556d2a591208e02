"""The consume loop behind HTTP: asks for as much as there is room for, and waits at the server until there is work."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct, structs

from ade.errors import AdeError, UnknownWorker
from ade.locks.holders.remote_run_locks import HttpRunLocks
from ade.logs import Log
from ade.tasks.handlers import HandlerMode, Registry
from ade.worker.api.requests import LONGEST_WAIT_S, MOST_CLAIMED, RunGrant
from ade.worker.executor import RunExecutor
from ade.worker.options import WorkerOptions
from ade.worker.poller import names_of
from ade.worker.remote.connection import ServerConnection, is_fault, is_passing

_SHORT_WAIT_S = 1.0  # while some kind of function has no room: nobody can tell the server when it has
_LAST_ANSWER_S = 0.5  # for the claim that is under way when the worker is told to stop
_NOWHERE = "ade-no-such-queue"  # nothing new comes from there
log = Log("ade.worker")


class ClaimAttempt(Struct, frozen=True, kw_only=True):
    """One claim. Repeated under the same id it brings the same tasks."""

    names: list[str]
    count: int
    wait: float
    request_id: str
    queues: list[str] | None = None  # None: as the worker was registered


class HttpTaskPoller:
    def __init__(
        self,
        reach: ServerConnection,
        registry: Registry,
        runs: RunExecutor,
        locks: HttpRunLocks,
        options: WorkerOptions,
        worker_name: str,
        register: Callable[[], Awaitable[None]],
    ) -> None:
        self._reach = reach
        self._runs = runs
        self._locks = locks
        self._options = options
        self._worker_name = worker_name
        self._register = register
        self._names: dict[HandlerMode, frozenset[str]] = {mode: names for (mode,), names in names_of(registry).items()}
        self._has_room = asyncio.Event()
        self._unanswered: ClaimAttempt | None = None  # asked before the server went away
        self._asking: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        runs.on_room = self._has_room.set
        runs.on_settled = self._has_room.set

    async def work(self) -> None:
        """Claim until told to stop."""
        times = 0
        while not self._stopping.is_set():
            self._has_room.clear()
            wanted = self._unanswered or self._wanted()
            if wanted is None:
                await self._has_room.wait()
                continue
            self._asking = asyncio.ensure_future(self._claim(wanted))
            try:
                await self._asking
                times = 0
            except asyncio.CancelledError:
                if not self._stopping.is_set():
                    raise
            except Exception as error:  # whatever it is, a worker that stops looking for work is of no use
                await self._after(error, times)
                times += 1
        await self._clear_up()

    async def stop(self) -> None:
        """Claim no more. A claim that only waits for work is given up, which the server notices."""
        self._stopping.set()
        self._has_room.set()
        if self._asking is not None and not self._asking.done():
            await asyncio.wait({self._asking}, timeout=_LAST_ANSWER_S)
            self._asking.cancel()

    def _wanted(self) -> ClaimAttempt | None:
        """As much as the scarcest kind that has room can take, so that priorities hold across kinds."""
        rooms = {mode: self._runs.room(mode) for mode in self._names}
        is_open = [mode for mode, room in rooms.items() if room > 0]
        if not is_open:
            return None
        count = min(min(rooms[mode] for mode in is_open), self._options.batch, MOST_CLAIMED)
        longest = min(LONGEST_WAIT_S, self._options.lease_s / 2)  # locks that come with a task must be fresh
        return ClaimAttempt(
            names=sorted(name for mode in is_open for name in self._names[mode]),
            count=count,
            wait=longest if len(is_open) == len(rooms) else min(_SHORT_WAIT_S, longest),
            request_id=os.urandom(16).hex(),
        )

    async def _claim(self, wanted: ClaimAttempt) -> None:
        repeats, self._unanswered = self._unanswered is not None, structs.replace(wanted, wait=0.0)
        asked_at = asyncio.get_running_loop().time()
        claimed = await self._reach.client.claim_tasks(
            worker=self._worker_name,
            names=wanted.names,
            queues=wanted.queues,
            count=wanted.count,
            lease_s=self._options.lease_s,
            wait=wanted.wait,
            request_id=wanted.request_id,
        )
        self._unanswered = None
        self._begin(claimed.runs, asked_at)
        if repeats:
            log.info("claim.answered_again", tasks=len(claimed.runs))

    def _begin(self, grants: list[RunGrant], asked_at: float) -> None:
        tasks = [grant.task for grant in grants if grant.run_id not in self._runs.held]
        if self._stopping.is_set():
            self._runs.hand_back(tasks)
            return
        for grant in grants:
            if grant.locks:
                self._locks.expect(grant.run_id, grant.locks, asked_at)
        self._runs.start(tasks)

    async def _after(self, error: Exception, times: int) -> None:
        """What can be done about it, and a pause."""
        if isinstance(error, UnknownWorker):  # it was silent for too long, or the server has another store now
            try:
                await self._register()
                return
            except AdeError as again:
                error = again
        pause = self._reach.pause(times)
        is_refusal = isinstance(error, AdeError)
        log.warning("claim.repeated", error=str(error), pause_s=round(pause, 2), exc_info=not is_refusal)
        if is_refusal and not is_passing(error) and not is_fault(error):
            self._unanswered = None  # it brought nothing: the next one may be another
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause)

    async def _clear_up(self) -> None:
        """Nobody else knows of what a claim without an answer may have brought: it is asked for once more, and nothing
        new with it."""
        if self._unanswered is None:
            return
        try:
            await self._claim(structs.replace(self._unanswered, queues=[_NOWHERE]))
        except AdeError as error:
            log.warning("claim.unanswered", error=str(error))
