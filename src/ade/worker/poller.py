"""The poller: claims as many tasks as there is room for, as soon as there is work or room, without busy polling."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from msgspec import structs

from ade.errors import AdeError, StoreTooNew
from ade.logs import Log
from ade.stores.ports import ClaimRequest
from ade.tasks.handlers import HandlerMode, Registry
from ade.tasks.model import Task
from ade.worker.backend import WorkerBackend, WorkerOptions
from ade.worker.executor import RunExecutor
from ade.worker.instrumentation import CLAIMED, WorkerProbe
from ade.worker.state import LINGER_S, ClaimTrigger, WorkerState
from ade.worker.timer import SharedTimer

_LEAST_APPETITE = 16
_LAST_ANSWER_S = 0.5  # for a claim that waits for work when the worker is told to stop
log = Log("ade.worker")


class TaskPoller:
    """Claims tasks and starts them on the executor."""

    def __init__(
        self,
        backend: WorkerBackend,
        registry: Registry,
        options: WorkerOptions,
        state: WorkerState,
        trigger: ClaimTrigger,
        runs: RunExecutor,
        timer: SharedTimer,
        probe: WorkerProbe,
    ) -> None:
        self._backend = backend
        self._capacity = backend.capacity
        self._options = options
        self._state = state
        self._wake = state.wake
        self._trigger = trigger
        self._runs = runs
        self._timer = timer
        self._clock = backend.clock
        self._probe = probe
        self._names = names_of(registry)
        self._modes = tuple(mode for (mode,) in self._names)
        self._own = frozenset(options.capabilities)
        # Sent before the backend became unavailable; the same request is repeated.
        self._unanswered: ClaimRequest | None = None
        self._asking: asyncio.Task[Sequence[Task]] | None = None  # a claim that waits for work
        self._ids = RunIds()
        self._stopped = asyncio.Event()
        self._fruitful = False  # the round returned tasks
        self._appetite = _LEAST_APPETITE  # tasks requested per claim: requesting many costs time, even if few exist
        self._late = 0  # runs that could not start in time
        self._most: int | None = None  # tasks requested at most since then

    async def work(self) -> None:
        """Claim until told to stop."""
        unfollow = self._backend.follow(self._trigger)
        times = 0
        try:
            while not self._stopped.is_set():
                self._wake.clear()
                try:
                    await self._claim_round()
                except StoreTooNew:  # only a newer version of ADE can use the store
                    raise
                except Exception as error:  # a worker that stops polling is useless
                    await self._pause(error, times)
                    times += 1
                    continue
                times = 0
                self._state.progress_at = self._clock.now()
                await self._rest()
            await self._clear_up()
        finally:
            unfollow()

    async def stop(self) -> None:
        """Stop claiming. A claim that only waits for work is cancelled, which a server notices."""
        self._stopped.set()
        self._wake.set()
        if self._asking is not None and not self._asking.done():
            await asyncio.wait({self._asking}, timeout=_LAST_ANSWER_S)
            self._asking.cancel()

    async def _pause(self, error: Exception, times: int) -> None:
        pause = self._backend.claim_pause_s(times)
        log.warning("claim.repeated", error=str(error), pause_s=round(pause, 2), exc_info=_is_unexpected(error))
        if self._backend.is_refusal(error):
            self._unanswered = None  # it claimed nothing: the next request can differ
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), pause)

    async def _claim_round(self) -> None:
        """Claim for all modes together as far as the fullest one has room, so that priorities hold across modes; then
        for the others. Every round starts with all modes that have room, so the first task in the queue is never
        passed over.

        A claim that waits for work is its own round, so that the next one is for all modes again.
        """
        trigger = self._trigger
        trigger.begin_round()
        self._fruitful = False
        if self._unanswered is not None:
            await self._claim(structs.replace(self._unanswered, may_be_repeated=True))
        modes, with_more, most = self._modes, list[HandlerMode](), self._most_claimed()
        while modes and not self._stopped.is_set():
            rooms = {mode: min(self._state.room(mode), most) for mode in modes}
            limit = min((room for room in rooms.values() if room > 0), default=0)
            if not self._backend.waits:
                limit = min(limit, self._appetite)
            open_modes = tuple(mode for mode in modes if rooms[mode] > 0)
            if len(open_modes) < len(modes):
                trigger.eager = True
            if not open_modes:
                break
            run_ids = await self._with_units(self._ids.take(limit))
            claimed = await self._claim(self._request(open_modes, run_ids)) if run_ids else 0
            if claimed < len(run_ids):
                self._appetite = max(_LEAST_APPETITE, claimed * 4)
                trigger.starved, trigger.capped = True, False
                break
            self._appetite = max(self._appetite, claimed * 4)
            trigger.eager = True
            if trigger.capped:
                break
            with_more += [mode for mode in open_modes if rooms[mode] == limit or self._backend.waits]
            modes = () if self._backend.waits else tuple(mode for mode in open_modes if rooms[mode] > limit)
        if any(self._state.room(mode) > 0 for mode in with_more):
            self._wake.set()  # one call returns a limited number: continue while these start

    def _most_claimed(self) -> int:
        """Return the limit of a claim. After runs that could not start in time it is 1, and doubles with every round:
        what handlers that block the event loop would keep waiting is for other workers.
        """
        if self._runs.late != self._late:
            self._late, self._most = self._runs.late, 1
        elif self._most is not None:
            self._most = None if self._most >= self._options.batch else self._most * 2
        return self._options.batch if self._most is None else self._most

    async def _with_units(self, run_ids: list[str]) -> list[str]:
        """Return the run IDs for which the agent has capacity."""
        if self._capacity is None:
            return run_ids
        given = await self._capacity.take(run_ids)
        if len(given) < len(run_ids):
            self._trigger.capped = True
            if self._capacity.has_over:  # since the request
                self._wake.set()
        return given

    def _request(self, modes: tuple[HandlerMode, ...], run_ids: list[str]) -> ClaimRequest:
        names = self._names.get(modes)
        if names is None:
            names = frozenset[str]().union(*(self._names[(mode,)] for mode in modes))
            self._names[modes] = names
        return ClaimRequest(
            worker_id=self._backend.name,
            run_ids=run_ids,
            names=names,
            queues=self._options.queues,
            capabilities=self._own if self._capacity is None else self._own.union(self._capacity.agent.capabilities),
            lease_ms=self._options.lease_ms,
            may_be_repeated=False,
        )

    async def _claim(self, request: ClaimRequest, *, is_last: bool = False) -> int:
        """Claim and start tasks; returns their number."""
        self._unanswered = request
        self._state.claim(request.run_ids)
        if self._backend.waits and not is_last:
            tasks = await self._waiting_claim(request)
        else:
            tasks = await self._backend.claim(request, is_last=is_last)
        if tasks is None:
            return 0
        self._unanswered = None
        if self._probe.armed and tasks:
            await self._probe(CLAIMED)
        if self._stopped.is_set():
            self._runs.hand_back(tasks)
        elif tasks:
            self._runs.start(tasks)
            self._fruitful = True
        else:
            self._state.claim(())
        if self._capacity is not None:
            self._capacity.claimed()
        if tasks:
            # Let the runs start before anything else is requested. Short handlers finish in the first turn of the loop,
            # and request their commit in the second: the next claim then shares a transaction with it.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return len(tasks)

    async def _waiting_claim(self, request: ClaimRequest) -> Sequence[Task] | None:
        """Claim in a separate asyncio task that can be cancelled; None then, since what it claimed is unknown."""
        self._asking = asyncio.ensure_future(self._backend.claim(request))
        try:
            return await self._asking
        except asyncio.CancelledError:
            if not self._stopped.is_set():
                raise
            return None

    async def _clear_up(self) -> None:
        """Repeat a claim without a response and return its tasks: only this worker knows of them."""
        if self._unanswered is None:
            return
        try:
            await self._claim(structs.replace(self._unanswered, may_be_repeated=True), is_last=True)
        except Exception as error:
            log.warning("claim.unanswered", error=str(error), exc_info=_is_unexpected(error))

    async def _rest(self) -> None:
        """Wait for work, room, a due task, or the poll interval."""
        trigger = self._trigger
        if trigger.starved and (trigger.hinted or self._backend.waits):
            # The work may be for others: poll often, but not in a busy loop.
            if not (self._fruitful or self._backend.waits):
                await asyncio.sleep(LINGER_S)
            return
        if trigger.capped and trigger.freed:  # others may have been faster
            await asyncio.sleep(LINGER_S)
            return
        if self._wake.is_set() or self._stopped.is_set():
            return
        seconds = self._options.poll_s
        if trigger.starved:
            seconds = min(seconds, await self._backend.next_due_s())
            if self._wake.is_set():
                return
        alarm = self._timer.after(seconds, self._wake.set)
        await self._wake.wait()
        self._timer.cancel(alarm)


def _is_unexpected(error: Exception) -> bool:
    return not isinstance(error, AdeError)


def names_of(registry: Registry) -> dict[tuple[HandlerMode, ...], frozenset[str]]:
    """Return the task names of each mode. Combinations of modes are added on first use."""
    by_mode: dict[HandlerMode, set[str]] = {}
    for handler in registry:
        by_mode.setdefault(handler.mode, set()).add(handler.name)
    return {(mode,): frozenset(names) for mode, names in by_mode.items()}


def fresh_ids(count: int) -> list[str]:
    """Return new random run IDs."""
    digits = os.urandom(16 * count).hex()
    return [digits[start : start + 32] for start in range(0, len(digits), 32)]


class RunIds:
    """A stock of run IDs: a system call per batch would release the interpreter lock each time."""

    def __init__(self, stock: int = 1_024) -> None:
        self._stock = stock
        self._ids: list[str] = []

    def take(self, count: int) -> list[str]:
        if len(self._ids) < count:
            self._ids += fresh_ids(max(self._stock, count))
        taken = self._ids[-count:]
        del self._ids[-count:]  # copying the rest would touch every ID
        return taken
