"""The consume loop: claims as much as there is room for, as soon as there is work or room, and never polls hotly."""

import asyncio
import os

from msgspec import structs

from ade.common.rate_limit import RateState, next_allowed_ms
from ade.errors import AdeError
from ade.logs import Log
from ade.stores.ports import AGENT, WORK, ClaimRequest, Stores
from ade.tasks.handlers import HandlerMode, Registry
from ade.tasks.model import Definition
from ade.worker.capacity import AgentCapacity
from ade.worker.executor import RunExecutor
from ade.worker.instrumentation import CLAIMED, WorkerProbe
from ade.worker.options import WorkerOptions
from ade.worker.timer import SharedTimer

_LINGER_S = 0.002  # how long a freed slot waits for company, so that a backlog is claimed in batches
_LEAST_APPETITE = 16
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
log = Log("ade.worker")


class TaskPoller:
    def __init__(
        self,
        stores: Stores,
        registry: Registry,
        runs: RunExecutor,
        timer: SharedTimer,
        options: WorkerOptions,
        worker_id: str,
        probe: WorkerProbe,
        capacity: AgentCapacity | None = None,  # of the agent it works for, if it works for one
    ) -> None:
        self._stores = stores
        self._runs = runs
        self._capacity = capacity
        self._timer = timer
        self._options = options
        self._worker_id = worker_id
        self._probe = probe
        self._names = names_of(registry)
        self._modes = tuple(mode for (mode,) in self._names)
        self._unanswered: ClaimRequest | None = None  # asked before the store went away; the same request is repeated
        self._rated = [item.definition for item in registry if item.definition.rate_count is not None]
        self._own = frozenset(options.capabilities)
        self._ids = RunIds()
        self._wake = asyncio.Event()
        self._stopping = False
        self._starved = False  # some claim brought less than it asked for: new work must wake us
        self._eager = False  # some mode could take more: new room must wake us
        self._capped = False  # the agent had no more units: one that comes free must wake us
        self._freed = False  # units came free since the round began
        self._hinted = False  # new work was announced since the round began
        self._fruitful = False  # the round brought something
        self._lingering = False
        self._appetite = _LEAST_APPETITE  # tasks asked for at once: asking for many costs, even if few are there
        self._enough = max(options.concurrency // 4, 1)
        self.progress_at = stores.clock.now()
        runs.on_room = self._on_room
        runs.on_settled = self._on_settled
        if capacity is not None:
            capacity.on_change = self._wake.set

    async def work(self) -> None:
        """Claim until told to stop."""
        hints = self._stores.hints
        unfollow = [hints.follow(WORK, self._on_new_work)]
        if self._capacity is not None:
            unfollow.append(hints.follow(AGENT, self._on_units))
        pause = _FIRST_PAUSE_S
        try:
            while not self._stopping:
                self._wake.clear()
                try:
                    await self._claim_round()
                except Exception as error:  # whatever it is, a worker that stops looking for work is of no use
                    log.warning("claim.repeated", error=str(error), pause_s=pause, exc_info=_is_unexpected(error))
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE_S)
                    continue
                pause = _FIRST_PAUSE_S
                self.progress_at = self._stores.clock.now()
                await self._rest()
            await self._clear_up()
        finally:
            for leave in unfollow:
                leave()

    @property
    def capabilities(self) -> frozenset[str]:
        """What this worker can do, and its agent, as far as that is known. Also read by the lease thread."""
        return self._own if self._capacity is None else self._own.union(self._capacity.agent.capabilities)

    def stop(self) -> None:
        """Claim no more."""
        self._stopping = True
        self._wake.set()

    async def _claim_round(self) -> None:
        """Claim for all modes together as far as the scarcest one has room, so that priorities hold across modes;
        then for the others. Every round begins with all that have room, so what is first in line is never passed over.
        """
        self._starved = self._eager = self._hinted = self._fruitful = self._capped = self._freed = False
        if self._unanswered is not None:
            await self._claim(structs.replace(self._unanswered, may_be_repeated=True))
        modes, with_more = self._modes, list[HandlerMode]()
        while modes and not self._stopping:
            rooms = {mode: min(self._runs.room(mode), self._options.batch) for mode in modes}
            limit = min((room for room in rooms.values() if room > 0), default=0)
            limit = min(limit, self._appetite)
            open_modes = tuple(mode for mode in modes if rooms[mode] > 0)
            if len(open_modes) < len(modes):
                self._eager = True
            if not open_modes:
                break
            run_ids = await self._with_units(self._ids.take(limit))
            claimed = await self._claim(self._request(open_modes, run_ids)) if run_ids else 0
            if claimed < len(run_ids):
                self._appetite = max(_LEAST_APPETITE, claimed * 4)
                self._starved, self._capped = True, False
                break
            self._appetite = max(self._appetite, claimed * 4)
            self._eager = True
            if self._capped:
                break
            with_more += [mode for mode in open_modes if rooms[mode] == limit]
            modes = tuple(mode for mode in open_modes if rooms[mode] > limit)
        if any(self._runs.room(mode) > 0 for mode in with_more):
            self._wake.set()  # one call hands out only so many: go on while these begin

    async def _with_units(self, run_ids: list[str]) -> list[str]:
        """Those of them that may begin, as far as the agent is concerned."""
        if self._capacity is None:
            return run_ids
        given = await self._capacity.take(run_ids)
        if len(given) < len(run_ids):
            self._capped = True
            if self._capacity.has_over:  # since it was asked
                self._wake.set()
        return given

    def _request(self, modes: tuple[HandlerMode, ...], run_ids: list[str]) -> ClaimRequest:
        names = self._names.get(modes)
        if names is None:
            names = frozenset[str]().union(*(self._names[(mode,)] for mode in modes))
            self._names[modes] = names
        return ClaimRequest(
            worker_id=self._worker_id,
            run_ids=run_ids,
            names=names,
            queues=self._options.queues,
            capabilities=self.capabilities,
            lease_ms=self._options.lease_ms,
            may_be_repeated=False,
        )

    async def _claim(self, request: ClaimRequest) -> int:
        """Start what the store hands out; how many these are."""
        self._unanswered = request
        tasks = await self._stores.tasks.claim(request)
        self._unanswered = None
        if self._probe.armed and tasks:
            await self._probe(CLAIMED)
        if self._stopping:
            self._runs.hand_back(tasks)
        elif tasks:
            self._runs.start(tasks)
            self._fruitful = True
        if self._capacity is not None:
            self._capacity.claimed()
        if tasks:
            # They begin before anything else is asked. Short ones are done in the first turn of the loop, and in the
            # second their commit is asked for: the next claim then goes with it into one transaction.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return len(tasks)

    async def _clear_up(self) -> None:
        """Nobody else knows of what a claim without an answer may have brought: it is asked for once more."""
        if self._unanswered is None:
            return
        try:
            await self._claim(structs.replace(self._unanswered, may_be_repeated=True))
        except Exception as error:
            log.warning("claim.unanswered", error=str(error), exc_info=_is_unexpected(error))

    async def _rest(self) -> None:
        """Until there is work, room, a due task or time for the slow look."""
        if self._starved and self._hinted:
            if not self._fruitful:  # announced work may be for others: look often, but not hotly
                await asyncio.sleep(_LINGER_S)
            return
        if self._capped and self._freed:  # others may have been faster
            await asyncio.sleep(_LINGER_S)
            return
        if self._wake.is_set() or self._stopping:
            return
        seconds = self._options.poll_s
        if self._starved:
            seconds = min(seconds, await self._next_due_s())
            if self._wake.is_set():
                return
        alarm = self._timer.after(seconds, self._wake.set)
        await self._wake.wait()
        self._timer.cancel(alarm)

    async def _next_due_s(self) -> float:
        """Seconds until a delayed task is due or a rate limit lets the next one through."""
        try:
            due = await self._stores.sweeps.next_due()
            moments = [] if due is None else [due]
            for definition in self._rated:
                moments += await self._next_allowed(definition)
        except AdeError as error:
            log.warning("claim.due_time_unknown", error=str(error))
            return self._options.poll_s
        now = self._stores.clock.now()
        return min(((moment - now) / 1000 for moment in moments), default=self._options.poll_s)

    async def _next_allowed(self, definition: Definition) -> list[int]:
        if definition.rate_count is None or definition.rate_period_ms is None:
            return []
        steady = self._stores.clock.steady()
        state = RateState(await self._stores.queues.rate_full_at(definition.name))
        moment = next_allowed_ms(state, count=definition.rate_count, period_ms=definition.rate_period_ms, now_ms=steady)
        # If it was allowed already, nothing waits.
        return [self._stores.clock.now() + moment - steady] if moment > steady else []

    def _on_new_work(self) -> None:
        """New work wakes a pump that has room for it; with a backlog in sight it is no news."""
        self._hinted = True
        if self._starved:
            self._wake.set()

    def _on_units(self) -> None:
        """Somebody has given units of the agent back, or it may do more."""
        self._freed = True
        if self._capped:
            self._wake.set()

    def _on_room(self) -> None:
        if self._capacity is not None:
            self._capacity.look()
            if self._capped:  # then room is of use only with a unit
                if self._capacity.has_over:
                    self._wake.set()
                return
        if not self._eager or self._wake.is_set():
            return
        performing = self._runs.performing
        if not performing or self._options.concurrency - performing >= self._enough:
            self._wake.set()
        elif not self._lingering:
            self._lingering = True
            self._timer.after(_LINGER_S, self._end_linger)

    def _on_settled(self) -> None:
        """What was committed may have let others go ahead: tasks that waited for it."""
        if self._starved:
            self._wake.set()

    def _end_linger(self) -> None:
        self._lingering = False
        self._wake.set()


def _is_unexpected(error: Exception) -> bool:
    return not isinstance(error, AdeError)


def names_of(registry: Registry) -> dict[tuple[HandlerMode, ...], frozenset[str]]:
    """What may be claimed for a mode. What may be claimed for several is added when it is first asked for."""
    by_mode: dict[HandlerMode, set[str]] = {}
    for handler in registry:
        by_mode.setdefault(handler.mode, set()).add(handler.name)
    return {(mode,): frozenset(names) for mode, names in by_mode.items()}


def fresh_ids(count: int) -> list[str]:
    digits = os.urandom(16 * count).hex()
    return [digits[start : start + 32] for start in range(0, len(digits), 32)]


class RunIds:
    """A stock of run ids: asking the kernel for each batch would give the interpreter away each time."""

    def __init__(self, stock: int = 1_024) -> None:
        self._stock = stock
        self._ids: list[str] = []

    def take(self, count: int) -> list[str]:
        if len(self._ids) < count:
            self._ids += fresh_ids(max(self._stock, count))
        taken = self._ids[-count:]
        del self._ids[-count:]  # a copy of the others would touch every one of them
        return taken
