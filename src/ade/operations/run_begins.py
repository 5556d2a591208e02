"""A claim for a worker behind HTTP: the locks of each task are taken and the last look is taken before it is given."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

from msgspec import structs

from ade.core.admission import is_own_step
from ade.core.errors import AdeError, InvalidTask
from ade.core.locks.of_tasks import LOOK_AGAIN_MS, STANDS_NOWHERE_MS, request_of
from ade.core.locks.records import LockItem
from ade.core.outcome import Deferred, Outcome, Released
from ade.core.records import Task, Worker
from ade.core.task import run_timeout_ms
from ade.core.web.forms.work import Claim
from ade.core.web.remote_runs import RunGrant, run_ids
from ade.logs import Log
from ade.operations.kit import Office
from ade.operations.run_ends import end
from ade.ports import AGENT, WORK, ClaimRequest

_BREATH_S = 0.02  # between two looks, however often new work is announced: it may be for others
_SLOW_LOOK_S = 5.0  # finds what nobody announced
_LIMITED_LOOK_S = 1.0  # the same where names have limits: nobody announces that a rate lets the next one through
_MOST_IN_VAIN = 10  # looks that brought only tasks that must wait, one after the other
log = Log("ade.work")


class Claiming:
    """One claim. It looks again when there may be work, until the time that the worker waits is over."""

    def __init__(self, office: Office, worker: Worker, account: str, body: Claim) -> None:
        self._office = office
        self._worker = worker
        self._account = account
        self._body = body
        self._lease_ms = round(body.lease_s * 1000)
        self._names: frozenset[str] = frozenset()
        self._slow_look_s = _SLOW_LOOK_S
        self._is_capped = False  # its agent had no unit to spare

    async def run(self) -> list[RunGrant]:
        self._names = await self._served()
        hints, loop = self._office.stores.hints, asyncio.get_running_loop()
        until, look, in_vain = loop.time() + self._body.wait, 0, 0
        while True:
            seen = {topic: hints.generation(topic) for topic in (WORK, AGENT)}
            had_tasks, grants = await self._looked(look)
            if grants:
                return grants
            if had_tasks and in_vain < _MOST_IN_VAIN:  # they wait for locks or people: what is behind them may run
                look, in_vain = look + 1, in_vain + 1
                continue
            left_s = until - loop.time()
            if left_s <= 0:
                return []
            topic = AGENT if self._is_capped else WORK
            await hints.wait(topic, seen[topic], min(left_s, await self._next_look_s()))
            await asyncio.sleep(min(_BREATH_S, max(until - loop.time(), 0)))
            in_vain = 0

    async def _looked(self, look: int) -> tuple[bool, list[RunGrant]]:
        """Whoever hangs up meanwhile gets nothing: what was claimed for him is handed back, and costs its tasks
        nothing."""
        job = asyncio.ensure_future(self._look(look))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            _, grants = await job
            await asyncio.gather(*(_end(self._office, grant.task, Released("nobody took it")) for grant in grants))
            await self._give_back([grant.run_id for grant in grants])
            raise

    async def _look(self, look: int) -> tuple[bool, list[RunGrant]]:
        tasks = await self._claim(look, is_first=look == 0)
        return bool(tasks), await begin_all(self._office, tasks, self._lease_ms, self._give_back)

    async def _served(self) -> frozenset[str]:
        """Without what ADE does itself: whoever ran those could make up previews, or keep webhooks back. Raises
        InvalidTask where nothing is left of the names."""
        named = frozenset(self._worker.names if self._body.names is None else self._body.names)
        if not named:
            raise InvalidTask("say which names the worker can run, in the claim or when it is registered")
        if not (names := frozenset(name for name in named if not is_own_step(name))):
            raise InvalidTask(
                f"{', '.join(sorted(named))[:200]}: these are steps of ADE's own, which only its own workers run; name"
                " tasks of others"
            )
        definitions = await self._office.stores.workers.definitions()
        served = names - {definition.name for definition in definitions if definition.has_preview}
        if not served:
            raise InvalidTask(
                f"tasks of {', '.join(sorted(names))[:200]} are previewed anew before each run, which only ADE's own"
                " workers do; run one of those for them"
            )
        if any(each.name in served and each.rate_count is not None for each in definitions):
            self._slow_look_s = _LIMITED_LOOK_S
        return served

    async def _claim(self, look: int, *, is_first: bool) -> list[Task]:
        body, worker, stores = self._body, self._worker, self._office.stores
        ids = (
            [os.urandom(16).hex() for _ in range(body.count)]
            if body.request_id is None
            else run_ids(self._account, body.request_id, look, body.count)
        )
        given = ids
        if worker.agent is not None:
            given = await stores.agents.take(worker.agent, ids, lease_ms=self._lease_ms)
            self._is_capped = not given
        if not given:
            return []
        tasks = await stores.tasks.claim(
            ClaimRequest(
                worker_id=worker.id,
                run_ids=given,
                names=self._names,
                queues=tuple(worker.queues if body.queues is None else body.queues),
                capabilities=frozenset(worker.capabilities if body.capabilities is None else body.capabilities),
                lease_ms=self._lease_ms,
                may_be_repeated=body.request_id is not None and is_first,
            )
        )
        used = {task.run_id for task in tasks}
        await self._give_back([run_id for run_id in given if run_id not in used])
        return tasks

    async def _give_back(self, run_ids: Sequence[str]) -> None:
        """Units of the agent that no run needs."""
        if self._worker.agent is not None and run_ids:
            await self._office.stores.agents.release(self._worker.agent, run_ids)

    async def _next_look_s(self) -> float:
        due = await self._office.stores.sweeps.next_due()
        if due is None:
            return self._slow_look_s
        return min(max((due - self._office.stores.clock.now()) / 1000, 0.0), self._slow_look_s)


async def begin_all(
    office: Office, tasks: Sequence[Task], lease_ms: int, give_back: Callable[[Sequence[str]], Awaitable[None]]
) -> list[RunGrant]:
    """Those that may run now; the others wait for their locks or for people, or have failed, as was decided.

    Locks are asked for in the order of the tasks: who came first goes first.
    """
    locks = [await _locks(office, task, lease_ms) for task in tasks]
    begun = await asyncio.gather(
        *(_begin(office, task, held, lease_ms) for task, held in zip(tasks, locks, strict=True))
    )
    grants = [grant for grant in begun if grant is not None]
    running = {grant.run_id for grant in grants}
    await give_back([task.run_id or "" for task in tasks if task.run_id not in running])
    return grants


async def _begin(office: Office, task: Task, locks: tuple[LockItem, ...] | Deferred, lease_ms: int) -> RunGrant | None:
    try:
        outcome = locks if isinstance(locks, Deferred) else await _check(office, task)
        if outcome is None and not isinstance(locks, Deferred):
            whole = structs.replace(task, args=await office.payloads.load(task.args))
            timeout_ms = run_timeout_ms(task)
            return RunGrant(run_id=task.run_id or "", task=whole, lease_ms=lease_ms, timeout_ms=timeout_ms, locks=locks)
    except AdeError as error:  # one that cannot be judged or read keeps no other back
        log.warning("run.not_begun", task_id=task.id, attempt=task.attempt, worker=task.worker_id, error=str(error))
        outcome = Released(f"it could not begin: {error.detail}"[:2_000])
    assert outcome is not None
    await _end(office, task, outcome)
    return None


async def _end(office: Office, task: Task, outcome: Outcome) -> None:
    try:
        await end(office, task, outcome)
    except AdeError as error:  # its lease runs out by itself
        log.warning("run.not_ended", task_id=task.id, attempt=task.attempt, worker=task.worker_id, error=str(error))


async def _locks(office: Office, task: Task, lease_ms: int) -> tuple[LockItem, ...] | Deferred:
    """All that the task names, or how it waits for that."""
    if not task.locks:
        return ()
    resources = tuple(wish.resource for wish in task.locks)
    try:
        grant = await office.locks().grant(request_of(task, ttl_ms=lease_ms))
    except AdeError as error:  # too many wait already
        log.warning("locks.not_asked_for", task_id=task.id, resources=resources, error=str(error))
        return Deferred(resources, STANDS_NOWHERE_MS)
    return Deferred(resources, LOOK_AGAIN_MS) if grant is None else grant.items


async def _check(office: Office, task: Task) -> Outcome | None:
    """The same last look that ADE's own workers take. Steps of ADE's own, which it would pass over, never come here."""
    if task.review is None:
        rulebook, _ = await office.rules()
        if not rulebook.guard:
            return None
    from ade.governance.approvals.last_look import last_look

    return await last_look(office.stores, office.payloads, task)
