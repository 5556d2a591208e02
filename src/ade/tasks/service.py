"""Operations on stored tasks: cancel, replay, discard, edit, requeue after a lock grant, and wait for completion.

Every change reads the record, decides, and commits with a guard. A stale write repeats the cycle.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw

from ade.approvals.model import PastRun
from ade.errors import AdeError, IllegalTransition, InvalidTask, StaleWrite, StoreCorrupt, UnknownTask, WaitTimeout
from ade.events.model import Event
from ade.locks.model import DEFAULT_NAMESPACE, LockRequest, by_namespace
from ade.locks.requests import request_id
from ade.stores.ports import DONE, STOP, WORK, Stores, TaskQuery
from ade.tasks import decisions
from ade.tasks.changes import EVENT_OF, Change
from ade.tasks.decisions import break_chain, requeue
from ade.tasks.lifecycle import CLAIMABLE, FINAL, Status, Verb
from ade.tasks.model import Task
from ade.tasks.option_values import read_moment, read_ms, read_priority
from ade.tasks.payloads import Payloads
from ade.worker.instrumentation import RunReference, current_run

if TYPE_CHECKING:
    from ade.locks.detector import TaskWaits

# Tasks whose lock requests were granted: they return to the queue and can be claimed immediately.


LIMIT = 200


async def requeue_granted(stores: Stores, limit: int = LIMIT) -> int:
    """Requeue tasks whose locks were granted, and return how many were handled.

    Safe to run in any process at any time, also concurrently. Locks of finished tasks and of tasks in paused queues
    are released to the next request.
    """
    called = await stores.locks.called(limit)
    if not called:
        return 0
    tasks = await stores.tasks.get([request.task_id or "" for request in called])
    now = stores.clock.now()
    changes, in_vain, unclaimed = [], list[LockRequest](), list[tuple[LockRequest, Task]]()
    for request, task in zip(called, tasks, strict=True):
        if task is None or not _is_for(request, task):
            in_vain.append(request)
        elif task.status is Status.PENDING and task.run_after > now:
            changes.append(requeue(task, now=now))
        elif task.status is Status.PENDING:
            unclaimed.append((request, task))
    answers = await stores.tasks.commit_each(changes) if changes else []
    recalled = sum(answer is None for answer in answers)
    if recalled:
        stores.wakeups.notify(WORK)
    in_vain += await _of_paused_queues(stores, unclaimed)
    for namespace, ids in by_namespace(in_vain).items():
        await stores.locks.release(namespace, ids)
    return recalled + len(in_vain)


async def _of_paused_queues(stores: Stores, unclaimed: list[tuple[LockRequest, Task]]) -> list[LockRequest]:
    """Requests of tasks that no worker can claim, so others can have the locks. The tasks request them again later."""
    if not unclaimed:
        return []
    paused = {queue.name for queue in await stores.queues.list_queues() if queue.paused}
    return [request for request, task in unclaimed if task.queue in paused]


async def cancel_lock_waits(stores: Stores, tasks: Iterable[Task]) -> None:
    """Withdraw the lock requests of tasks that will not run. A started run releases its locks when it ends."""
    ids = [request_id(task) for task in tasks if task.locks]
    if ids:
        await stores.locks.release(DEFAULT_NAMESPACE, ids)


def _is_for(request: LockRequest, task: Task) -> bool:
    return not task.is_final and request_id(task) == request.id


# Optimistic concurrency: read, decide, commit; after a stale write, read and decide again.


_TRIES = 10


async def get(stores: Stores, task_id: str) -> Task:
    """Return the current task record. Raises UnknownTask."""
    [task] = await stores.tasks.get([task_id])
    if task is None:
        raise unknown(task_id)
    return task


def unknown(task_id: str) -> UnknownTask:
    """Build the error for a task that does not exist."""
    return UnknownTask(f"no task with the id {task_id[:60]!r} exists; it may have been pruned")


async def decide(
    stores: Stores,
    task_id: str,
    decision: Callable[[Task, int], Change | None],
    *,
    tries: int = _TRIES,
    before: Callable[[Change], Awaitable[None]] | None = None,
) -> Task:
    """Commit a decision on the newest version of the task. A decision of None leaves it unchanged.

    `before` is awaited for each change, just before it is written. Raises StaleWrite after `tries` attempts.
    """
    for tries_left in reversed(range(tries)):
        task = await get(stores, task_id)
        change = decision(task, stores.clock.now())
        if change is None:
            return task
        if before is not None:
            await before(change)
        try:
            await stores.tasks.commit(change)
        except StaleWrite:
            if not tries_left:
                raise
        else:
            notify_for(stores, change)
            return change.after
    raise AssertionError("unreachable: the last try returns or raises")


def notify_for(stores: Stores, *changes: Change) -> None:
    """Send the wake-ups that these changes call for: a task is final, a run must stop, or a task is claimable."""
    stopped = any(change.before.status is Status.RUNNING for change in changes)
    if any(change.after.is_final for change in changes):
        stores.wakeups.notify(DONE)
    if stopped:
        stores.wakeups.notify(STOP)
    if stopped or any(change.after.status in CLAIMABLE for change in changes):  # a stopped run frees a slot
        stores.wakeups.notify(WORK)


# Tasks whose dependencies did not complete are settled. That can break further tasks, so it runs in rounds.


_MAX_ROUNDS = 1000  # a chain settles one link per round; the next sweep does the rest


async def settle_broken(stores: Stores, limit: int = 200) -> int:
    """Cancel or fail tasks with a failed dependency, as their `after_failure` requires. Returns how many."""
    settled = 0
    for _ in range(_MAX_ROUNDS):
        broken = (await stores.sweeps.due(limit)).broken
        if not broken:
            break
        now = stores.clock.now()
        changes = [break_chain(task, failed_ids=failed, now=now) for task, failed in broken]
        answers = await stores.tasks.commit_each(changes)
        written = sum(not isinstance(answer, StaleWrite) for answer in answers)
        if not written:
            break  # another process is settling them
        settled += written
    if settled:
        stores.wakeups.notify(DONE)
    return settled


Check = Callable[[Task], object]  # checks the newest record before each decision; raises to refuse
_UNFINISHED = frozenset(Status) - FINAL
_PAGE = 200


def any_version(task: Task) -> None:
    """Accept every version: the default Check."""


async def cancel(
    stores: Stores,
    task_id: str,
    reason: str | None = None,
    *,
    actor: str | None = None,
    check: Check = any_version,
) -> Task:
    """Cancel a task, its unfinished children, and the tasks that depend on them. Idempotent.

    Raises IllegalTransition for a task that ended in another way.
    """

    def decision(task: Task, now: int) -> Change | None:
        if task.status is Status.CANCELLED:
            return None
        check(task)
        return decisions.cancel(task, reason, now=now, actor=actor)

    cancelled = await decide(stores, task_id, decision)
    await cancel_lock_waits(stores, [cancelled])
    await _cancel_children(stores, cancelled, actor)
    await settle_broken(stores)
    return cancelled


async def _cancel_children(stores: Stores, parent: Task, actor: str | None) -> None:
    parents = [parent.id]
    while parents:
        parent_id = parents.pop()
        page = await stores.tasks.find(TaskQuery(parent_id=parent_id, statuses=_UNFINISHED, limit=_PAGE))
        for child in page.tasks:
            try:
                cancelled = await decide(
                    stores,
                    child.id,
                    lambda task, now: decisions.cancel(task, "its parent was cancelled", now=now, actor=actor),
                )
            except IllegalTransition:
                continue  # it finished meanwhile
            await cancel_lock_waits(stores, [cancelled])
            parents.append(child.id)
        if page.next is not None:
            parents.append(parent_id)


async def reschedule(
    stores: Stores,
    task_id: str,
    *,
    priority: object = None,
    delay: object = None,
    run_at: object = None,
    actor: str | None = None,
    check: Check = any_version,
) -> Task:
    """Change the priority (0 to 9, or its name) of a pending task, or its start: `delay` seconds from now, 0 for now,
    or at `run_at`. A task that has both already is unchanged.

    Raises IllegalTransition unless the task is pending, and InvalidTask.
    """
    level = None if priority is None else read_priority("priority", priority)
    delay_ms = None if delay is None else read_ms("delay", delay, least=0)
    moment = None if run_at is None else read_moment("run_at", run_at)
    if level is None and delay_ms is None and moment is None:
        raise InvalidTask("name what to change: priority, and delay or run_at")
    if delay_ms is not None and moment is not None:
        raise InvalidTask("give either delay or run_at, not both")
    for tries_left in reversed(range(_TRIES)):
        seen = await get(stores, task_id)
        earlier = request_id(seen) if seen.locks else None
        waits = earlier is not None and await _is_waiting(stores, earlier)

        def decision(task: Task, now: int, seen: Task = seen, waits: bool = waits) -> Change | None:
            check(task)
            if task.version != seen.version:
                raise _Changed
            start = moment if delay_ms is None else now + delay_ms
            return decisions.reschedule(
                task, now=now, priority=level, run_after=start, waits_for_locks=waits, actor=actor
            )

        try:
            after = await decide(stores, task_id, decision, tries=1)
        except (_Changed, StaleWrite):
            if not tries_left:
                raise StaleWrite(f"task {task_id} changed again and again; try again") from None
            continue
        if earlier is not None and request_id(after) != earlier:
            await stores.locks.release(DEFAULT_NAMESPACE, [earlier])  # no run has it: the next one has another request
        return after
    raise AssertionError("unreachable: the last try returns or raises")


async def _is_waiting(stores: Stores, lock_request: str) -> bool:
    [found] = await stores.locks.look(DEFAULT_NAMESPACE, [lock_request])
    return found is not None and found.is_waiting


async def discard(
    stores: Stores, task_id: str, reason: str, *, actor: str | None = None, check: Check = any_version
) -> Task:
    """Discard a dead letter and record the reason."""

    def decision(task: Task, now: int) -> Change:
        check(task)
        return decisions.discard(task, reason, now=now, actor=actor)

    return await decide(stores, task_id, decision)


async def result_of(stores: Stores, payloads: Payloads, task: Task) -> Raw | None:
    """Return the result of a finished task; None if it expired, even after the record was read."""
    if task.result is None:
        return None
    try:
        return await payloads.load(task.result)
    except StoreCorrupt:
        if (await get(stores, task.id)).result_expired:
            return None
        raise


async def edit(
    stores: Stores,
    payloads: Payloads,
    task_id: str,
    *,
    actor: str | None = None,
    check: Check = any_version,
    **fields: object,
) -> Task:
    """Change a draft; the result is checked like a new task."""
    args = fields.get("args")
    if isinstance(args, Raw):
        fields["args"] = await payloads.spill(task_id, fresh_kind(), args)

    def decision(task: Task, now: int, ran: PastRun | None) -> Change:
        check(task)
        return decisions.edit(task, now=now, actor=actor, ran=ran, **fields)

    return await decide_edit(stores, task_id, decision)


EditDecision = Callable[[Task, int, PastRun | None], Change]


async def decide_edit(stores: Stores, task_id: str, decision: EditDecision) -> Task:
    """Decide on new arguments. What the task ran with before is looked up first, and kept in its record."""
    while True:
        seen = await get(stores, task_id)
        ran = await last_run(stores, seen)
        try:
            return await decide(stores, task_id, partial(_decided, decision, seen, ran))
        except _Changed:
            continue


class _Changed(Exception):
    """The record was changed between two looks at it."""


def _decided(decision: EditDecision, seen: Task, ran: PastRun | None, task: Task, now: int) -> Change:
    if task.version != seen.version:
        raise _Changed
    return decision(task, now, ran)


(_CLAIMED,), (_DEFERRED,), (_REPLAYED,) = EVENT_OF[Verb.CLAIM], EVENT_OF[Verb.DEFER], EVENT_OF[Verb.REPLAY]
_EDITED = frozenset({*EVENT_OF[Verb.EDIT], _REPLAYED})
_RUN_ENDS = frozenset(
    kind
    for verb in (Verb.SUCCEED, Verb.RETRY, Verb.FAIL, Verb.HOLD, Verb.STALL, Verb.RELEASE, Verb.DEFER, Verb.CANCEL)
    for kind in EVENT_OF[verb]
)
_UNCERTAIN = frozenset({*EVENT_OF[Verb.CANCEL], *EVENT_OF[Verb.STALL]})
_EVENTS_PAGE = 1_000


async def last_run(stores: Stores, task: Task) -> PastRun | None:
    """Return what the last run that began ran with; None if none has. The log knows which runs began."""
    past = None if task.review is None else task.review.ran
    if task.started_at is None and task.generation == 1:
        return past
    has_begun, is_claimed, is_logged, generation, after = False, False, False, 1, 0
    began_in = task.generation
    while events := await stores.events.read(after, _EVENTS_PAGE, task_id=task.id):
        for event in events:
            if event.type in _EDITED and (event.payload.get("edited") or "args" in _fields_of(event)):
                has_begun = False
            elif event.type == _CLAIMED:
                is_claimed = is_logged = True
            elif event.type in _RUN_ENDS and is_claimed:
                is_claimed = False
                if _shows_a_start(event, task):
                    has_begun, began_in = True, generation
            if event.type == _REPLAYED:
                generation += 1
        after = events[-1].seq
    if not is_logged and task.started_at is not None:  # the log has been trimmed
        has_begun = True
    return PastRun(args=task.args, digest=task.digest, generation=began_in) if has_begun else past


def _shows_a_start(event: Event, task: Task) -> bool:
    """Whether the run that this event ends had begun. If it was cancelled or lost, that is not known: a governed task
    cannot have begun without an approval."""
    if event.type in _UNCERTAIN and task.approved_at is None:
        return task.review is None or not task.review.is_governed
    return event.type != _DEFERRED and event.payload.get("has_begun") is not False


def _fields_of(event: Event) -> Sequence[str]:
    fields = event.payload.get("fields")
    return fields if isinstance(fields, list) else ()


def fresh_kind() -> str:
    """A unique blob name: of two concurrent edits, the rejected one must not overwrite the other's blob."""
    return f"{os.urandom(4).hex()}.args"


# Waiting for final tasks. All waiters on one event loop share one poll of the store.


_SLOW_POLL_S = 1.0  # fallback for a lost wake-up
_PAUSE_PER_WAITER_S = 0.000_05  # 1,000 waiters poll every 50 ms at most, one waiter polls at every wake-up
_PAGE_WAITING = 500


class CompletionWatcher:
    """Waits for final tasks on one event loop, and polls only while there are waiters."""

    def __init__(self, stores: Stores, waits: "Callable[[], TaskWaits] | None" = None) -> None:
        self._stores = stores
        self._waits = waits  # where a run says that it waits, so that deadlocks are found; created when needed
        self._waiting: dict[str, list[asyncio.Future[Task]]] = {}
        self._look: asyncio.Task[None] | None = None

    async def wait(self, task_id: str, timeout: float | None = None, run: RunReference | None = None) -> Task:
        """Return the task once it is final. `run` is the run that waits; by default, the one whose code this is.

        Raises WaitTimeout, UnknownTask and, for a run, DeadlockVictim.
        """
        task = await get(self._stores, task_id)
        if task.is_final:
            return task
        run = run or current_run.get()
        if run is None or self._waits is None:
            return await self._wait(task_id, timeout)
        return await self._waits().wait(run, task_id, self._wait(task_id, timeout))

    async def _wait(self, task_id: str, timeout: float | None) -> Task:
        future: asyncio.Future[Task] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(task_id, []).append(future)
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._look_until_done(), name="ade-finish-watch")
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise WaitTimeout(f"task {task_id} did not finish in {timeout:g} s; it continues") from None
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
                seen = self._stores.wakeups.generation(DONE)
                await self._answer(list(self._waiting))
                if self._waiting:
                    await self._stores.wakeups.wait(DONE, seen, _SLOW_POLL_S)
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
