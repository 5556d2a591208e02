"""Explain why a task is not running, for every status, from the data in the store."""

from collections.abc import AsyncIterator, Iterator, Sequence

from ade.agents.views import blocking_agents
from ade.common.gcra import RateState, next_allowed_ms
from ade.errors import UnknownTask
from ade.locks.model import DEFAULT_NAMESPACE, LockRequest, LockSpec, conflict, place_in_line
from ade.locks.requests import request_id
from ade.locks.views import explain_stuck
from ade.stores.ports import Stores, TaskQuery
from ade.stores.resource_ports import LockQuery
from ade.tasks.lifecycle import CLAIMABLE, Status
from ade.tasks.model import AfterFailure, Definition, Task
from ade.tasks.reasons import Explanation, Reason, listed, moment, span
from ade.worker.views import WorkersLiveness, WorkerView, has_place, missing, serves, view_workers

# Concurrency and rate limits, and the running tasks that use them up.


_MOST_SHOWN = 50


async def limits_reached(stores: Stores, task: Task, definition: Definition | None) -> AsyncIterator[Reason]:
    """Yield a reason for each concurrency or rate limit of the task name that is exhausted."""
    if definition is None:
        return
    for reason in (
        await _by_name(stores, task, definition),
        await _by_key(stores, task, definition),
        await _by_rate(stores, task, definition),
    ):
        if reason is not None:
            yield reason


async def _by_name(stores: Stores, task: Task, definition: Definition) -> Reason | None:
    limit = definition.concurrency
    if limit is None:
        return None
    tallies = await stores.queues.tallies()
    running = sum(t.count for t in tallies if t.name == task.name and t.status is Status.RUNNING)
    if running < limit:
        return None
    query = TaskQuery(statuses=frozenset({Status.RUNNING}), name=task.name, limit=_MOST_SHOWN)
    holders = [other.id for other in (await stores.tasks.find(query)).tasks]
    return Reason(
        code="concurrency_limit",
        sentence=f"{_at_most(limit)} named {task.name!r} may run at once; now {_who_runs(holders)}",
        facts={"limit": limit, "running": running, "by": holders},
    )


async def _by_key(stores: Stores, task: Task, definition: Definition) -> Reason | None:
    limit = definition.concurrency_per_key
    if limit is None or task.concurrency_key is None:
        return None
    holders = await stores.queues.running_by_key(task.name, task.concurrency_key)
    if len(holders) < limit:
        return None
    return Reason(
        code="concurrency_key",
        sentence=(
            f"{_at_most(limit)} named {task.name!r} with the key {task.concurrency_key!r} may run at once;"
            f" now {_who_runs(holders)}"
        ),
        facts={"limit": limit, "key": task.concurrency_key, "by": holders},
    )


async def _by_rate(stores: Stores, task: Task, definition: Definition) -> Reason | None:
    count, period_ms = definition.rate_count, definition.rate_period_ms
    if count is None or period_ms is None:
        return None
    steady = stores.clock.steady()
    state = RateState(await stores.queues.rate_full_at(task.name))
    allowed_in = next_allowed_ms(state, count=count, period_ms=period_ms, now_ms=steady) - steady
    if allowed_in <= 0:
        return None
    allowed_at = stores.clock.now() + allowed_in
    often = "once" if count == 1 else f"{count} times"
    return Reason(
        code="rate_limit",
        sentence=(
            f"tasks named {task.name!r} start at most {often} in {span(period_ms)};"
            f" the next start is possible at {moment(allowed_at)}"
        ),
        facts={"count": count, "period_ms": period_ms, "next_at": allowed_at},
    )


def _at_most(limit: int) -> str:
    return "only 1 task" if limit == 1 else f"at most {limit} tasks"


def _who_runs(ids: list[str]) -> str:
    return f"{listed(ids)} {'runs' if len(ids) == 1 else 'run'}"


# Locks: their holders, and the requests ahead in the wait queue.


async def blocking_locks(stores: Stores, task: Task) -> Reason | None:
    """Return what keeps the task from its locks; None if they are free or already granted."""
    own_id = request_id(task)
    [own] = await stores.locks.look(DEFAULT_NAMESPACE, [own_id])
    if own is not None and own.is_granted:
        return None
    holders: dict[str, list[str]] = {}
    ahead: dict[str, int] = {}
    for spec in task.locks:
        standing = await stores.locks.find(LockQuery(namespace=DEFAULT_NAMESPACE, resource=spec.resource))
        against = [one for one in standing if one.id != own_id and _is_against(one, spec, stores.clock.steady())]
        held_by = [_named(one) for one in against if one.is_granted]
        if held_by:
            holders[spec.resource] = held_by
        before = [one for one in against if one.is_waiting and _is_before(one, own)]
        if before:
            ahead[spec.resource] = len(before)
    if not holders and not ahead:
        return None
    return Reason(code="locked", sentence=_sentence(task, holders, ahead), facts={"holders": holders, "ahead": ahead})


def _sentence(task: Task, holders: dict[str, list[str]], ahead: dict[str, int]) -> str:
    modes = {spec.resource: spec.mode for spec in task.locks}
    parts = []
    for resource in sorted(holders.keys() | ahead.keys()):
        what = f"the lock on {resource} ({modes[resource]})"
        who = f", held by {listed(holders[resource])}" if resource in holders else ""
        line = f", with {ahead[resource]} before it in line" if resource in ahead else ""
        parts.append(what + who + line)
    return f"it waits for {'; '.join(parts)}"


def _named(request: LockRequest) -> str:
    return f"{request.owner} ({request.purpose})" if request.purpose else request.owner


def _is_against(other: LockRequest, spec: LockSpec, steady: int) -> bool:
    mode = other.mode_of(spec.resource)
    return mode is not None and conflict(mode, spec.mode) and other.lease_until > steady


def _is_before(other: LockRequest, own: LockRequest | None) -> bool:
    return own is None or place_in_line(other) < place_in_line(own)


async def explain(stores: Stores, task_id: str) -> Explanation:
    """Explain the task's state. Raises UnknownTask."""
    [task] = await stores.tasks.get([task_id])
    if task is None:
        raise UnknownTask(f"no task with the id {task_id[:60]!r} exists; it may have been pruned")
    if task.status in CLAIMABLE:
        reasons = [reason async for reason in _why_waiting(stores, task)] or [await _ready(stores, task)]
    elif task.status is Status.RUNNING:
        reasons = await _running(stores, task)
    elif task.is_final:
        reasons = [_settled(task)]
    else:
        from ade.approvals.review_reasons import why_in_review  # slow to import, and only for tasks in review

        reasons = [await why_in_review(stores, task)]
    if task.status in CLAIMABLE or task.status is Status.RUNNING:
        reasons = [*await _deadlock(stores, task), *reasons]
    first = reasons[0].sentence
    sentence = f"It is {task.status}: {first}" if task.status in CLAIMABLE else first[0].upper() + first[1:]
    return Explanation(task_id=task.id, status=task.status, sentence=sentence, reasons=reasons)


async def _deadlock(stores: Stores, task: Task) -> list[Reason]:
    """Return the deadlock that the task is part of or waits for: it lasts some seconds, until it is resolved."""
    cycle = await explain_stuck(stores, task_ids=[task.id])
    if not cycle:
        return []
    return [Reason(code="deadlock", sentence=f"it is in a deadlock: {'; '.join(cycle)}", facts={"cycle": cycle})]


async def _why_waiting(stores: Stores, task: Task) -> AsyncIterator[Reason]:
    """Yield everything that keeps a pending or stalled task from being claimed, in the order to resolve it."""
    now = stores.clock.now()
    if task.status is Status.STALLED:
        yield _stalled(task)
    if task.waiting_on:
        yield await _waits_for(stores, task)
    locked = await blocking_locks(stores, task) if task.locks else None
    if locked is not None:
        yield locked
    elif task.run_after > now:
        yield _delayed(task, now)
    if task.deadline is not None and task.deadline <= now:
        yield _overdue(task)
    if task.queue in {queue.name for queue in await stores.queues.list_queues() if queue.paused}:
        yield Reason(
            code="queue_paused",
            sentence=f"the queue {task.queue!r} is paused",
            facts={"queue": task.queue},
            advice=f"`ade queues resume {task.queue}` resumes it",
        )
    views = await view_workers(stores)
    for reason in await _workers_and_agents(stores, views, task):
        yield reason
    definition = await _definition(stores, task)
    async for reason in limits_reached(stores, task, definition):
        yield reason
    if not task.waiting_on and task.run_after <= now and (behind := await _behind(stores, task, views)):
        yield behind


async def _waits_for(stores: Stores, task: Task) -> Reason:
    found = await stores.tasks.get(task.depends_on)
    open_ones = {
        other.id: str(other.status) for other in found if other is not None and not _is_met(other, task.after_failure)
    }
    shown = listed([f"{task_id} ({status})" for task_id, status in open_ones.items()])
    others = f"{task.waiting_on} other task{'s' * (task.waiting_on != 1)}"
    return Reason(code="waits_for", sentence=f"it waits for {shown or others}", facts={"tasks": open_ones})


def _is_met(other: Task, after_failure: AfterFailure) -> bool:
    """Whether this dependency no longer blocks. A pruned dependency was met before it was pruned."""
    return other.status is Status.COMPLETED or (other.is_final and after_failure is AfterFailure.RUN)


def _delayed(task: Task, now: int) -> Reason:
    until = f"until {moment(task.run_after)}, {span(task.run_after - now)} from now"
    facts: dict[str, object] = {"run_after": task.run_after, "attempt": task.attempt}
    if task.error is None:
        return Reason(code="delayed", sentence=f"it is delayed {until}", facts=facts)
    facts["error"] = f"{task.error.type}: {task.error.message}"[:500]
    sentence = f"attempt {task.attempt} of {task.max_attempts} failed ({facts['error']}), so it is delayed {until}"
    return Reason(code="delayed", sentence=sentence, facts=facts)


def _overdue(task: Task) -> Reason:
    at = moment(task.deadline or 0)
    sentence = f"its deadline passed at {at}; the next sweep fails it"
    return Reason(code="deadline_passed", sentence=sentence, facts={"deadline": task.deadline})


def _stalled(task: Task) -> Reason:
    sentence = (
        f"its worker {task.worker_id} went silent during attempt {task.attempt} of {task.max_attempts};"
        " any worker can take it over"
    )
    return Reason(code="stalled", sentence=sentence, facts={"worker": task.worker_id, "attempt": task.attempt})


async def _workers_and_agents(stores: Stores, views: Sequence[WorkerView], task: Task) -> list[Reason]:
    capacity = await blocking_agents(stores, _willing(views, task))
    return [*_workers(views, task), *([] if capacity is None else [capacity])]


def _workers(views: Sequence[WorkerView], task: Task) -> Iterator[Reason]:
    running = [each for each in views if each.liveness is not WorkersLiveness.SILENT]
    alive = [each for each in running if not each.only_delivers or task.name in each.worker.names]
    placed = [each for each in alive if has_place(each.worker, task)]
    able = [each for each in placed if serves(each.worker, task)]
    willing = _willing(views, task)
    if not alive:
        yield Reason(code="no_worker", sentence="no worker is running", advice="start one with `ade worker`")
    elif placed and not able:
        yield _lacking(placed, task)
    elif not able:
        knows_name = any(task.name in each.worker.names for each in alive)
        what = f"looks at the queue {task.queue!r}" if knows_name else f"has a task named {task.name!r}"
        facts: dict[str, object] = {"workers": len(alive), "name": task.name, "queue": task.queue}
        sentence = f"none of the {_counted(len(alive), 'running worker')} {what}"
        yield Reason(code="no_worker", sentence=sentence, facts=facts)
    elif not willing:
        states = {each.worker.id: str(each.liveness) for each in able}
        shown = listed([f"{worker} ({state})" for worker, state in states.items()])
        yield Reason(code="no_worker", sentence=f"no worker for it takes tasks: {shown}", facts={"workers": states})
    elif all(each.worker.running >= each.worker.concurrency for each in willing):
        places = sum(each.worker.concurrency for each in willing)
        sentence = f"all places of the {_counted(len(willing), 'worker')} for it are taken ({places})"
        yield Reason(code="workers_busy", sentence=sentence, facts={"workers": len(willing), "places": places})


def _lacking(placed: Sequence[WorkerView], task: Task) -> Reason:
    """Name the needs that no worker has or, if there are none, those that the best match lacks."""
    nobody_has = [need for need in task.needs if all(need in missing(each.worker, task) for each in placed)]
    nearest = min(placed, key=lambda each: len(missing(each.worker, task)))
    who = _counted(len(placed), "running worker")
    if nobody_has:
        sentence = f"it needs {', '.join(task.needs)}, and none of the {who} for it has {', '.join(nobody_has)}"
    else:
        lack = ", ".join(missing(nearest.worker, task))
        sentence = f"it needs {', '.join(task.needs)}, and none of the {who} for it has all of it"
        sentence += f"; {nearest.worker.id} has all but {lack}"
    facts: dict[str, object] = {
        "needs": list(task.needs),
        "missing": nobody_has or missing(nearest.worker, task),
        "workers": {each.worker.id: list(each.worker.capabilities) for each in placed},
    }
    advice = "start one with `ade worker --capability`, or give it to their agent with `ade agents register`"
    return Reason(code="capabilities", sentence=sentence, facts=facts, advice=advice)


async def _definition(stores: Stores, task: Task) -> Definition | None:
    return next((each for each in await stores.workers.definitions() if each.name == task.name), None)


def _willing(views: Sequence[WorkerView], task: Task) -> list[WorkerView]:
    return [each for each in views if each.liveness is WorkersLiveness.WORKING and serves(each.worker, task)]


async def _behind(stores: Stores, task: Task, views: Sequence[WorkerView]) -> Reason | None:
    """Report the queue position only if a worker claims from the queue; otherwise it is irrelevant."""
    willing = _willing(views, task)
    ahead = await stores.queues.ahead_of(task.id) if willing else 0
    if not ahead:
        return None
    waiting = {tally.name for tally in await stores.queues.tallies() if tally.queue == task.queue and tally.count}
    known = {name for each in willing for name in each.worker.names}
    most = "" if waiting <= known else "up to "  # tasks that these workers do not run do not delay it
    goes = "goes" if ahead == 1 else "go"
    sentence = f"{most}{_counted(ahead, 'task')} of the queue {task.queue!r} {goes} first, by priority and age"
    free = any(each.worker.running < each.worker.concurrency for each in willing)
    return Reason(code="behind", sentence=sentence, facts={"ahead": ahead, "free_worker": free})


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


async def _ready(stores: Stores, task: Task) -> Reason:
    """The store has no obstacle. Only the workers know their limits on threads and processes."""
    willing = _willing(await view_workers(stores), task)
    if any(each.worker.running == 0 for each in willing):
        return Reason(code="ready", sentence="nothing blocks it; a worker will claim it at any moment")
    running, places = sum(w.worker.running for w in willing), sum(w.worker.concurrency for w in willing)
    sentence = (
        f"nothing in the store blocks it, but the {_counted(len(willing), 'worker')} for it may be at a limit"
        f" of threads or processes ({_counted(running, 'task')} running in {_counted(places, 'place')}); it is claimed"
        " as soon as there is room"
    )
    return Reason(
        code="workers_may_be_busy",
        sentence=sentence,
        facts={"workers": len(willing), "running": running, "places": places},
    )


async def _running(stores: Stores, task: Task) -> list[Reason]:
    now, steady = stores.clock.now(), stores.clock.steady()
    since = f" for {span(now - task.started_at)}" if task.started_at is not None else ""
    sentence = f"attempt {task.attempt} of {task.max_attempts} has been running on {task.worker_id}{since}"
    facts: dict[str, object] = {"worker": task.worker_id, "attempt": task.attempt, "started_at": task.started_at}
    reasons = [Reason(code="running_on", sentence=sentence, facts=facts)]
    if task.lease_until is not None and task.lease_until <= steady:
        silent = f"its worker has been silent for {span(steady - task.lease_until)} past its lease"
        reasons.append(
            Reason(
                code="lease_lost",
                sentence=f"{silent}; the next sweep gives it to another",
                facts={"worker": task.worker_id, "silent_ms": steady - task.lease_until},
            )
        )
    return reasons


def _settled(task: Task) -> Reason:
    """Describe a final status."""
    at = f" at {moment(task.finished_at)}" if task.finished_at is not None else ""
    because = f": {task.reason}" if task.reason else ""
    match task.status:
        case Status.COMPLETED:
            return Reason(code="final", sentence=f"it completed{at}", facts={"finished_at": task.finished_at})
        case Status.FAILED:
            return _failed(task, at)
        case _:
            return Reason(code="final", sentence=f"it was {task.status}{at}{because}", facts={"reason": task.reason})


def _failed(task: Task, at: str) -> Reason:
    error = f"{task.error.type}: {task.error.message}"[:500] if task.error is not None else "for an unknown reason"
    used_up = task.attempt >= task.max_attempts
    attempts = "its only attempt is" if task.max_attempts == 1 else f"all {task.max_attempts} attempts are"
    what = f"{attempts} used up" if used_up else "another attempt could not help"
    discarded = f"; it was discarded: {task.reason}" if task.discarded else ""
    return Reason(
        code="attempts_used_up" if used_up else "final",
        sentence=f"it failed{at}, {what}. {error}{discarded}",
        facts={"error": error, "attempt": task.attempt, "max_attempts": task.max_attempts, "discarded": task.discarded},
        advice=None if task.discarded else f"`ade retry {task.id}` runs it again",
    )
