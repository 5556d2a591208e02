"""Views of workers and their liveness. A worker is alive if its claim loop progresses, not if a thread still pings."""

from collections.abc import Collection, Iterable
from enum import StrEnum, auto

from msgspec import Struct

from ade.stores.ports import StatusCount, Stores
from ade.tasks.identifiers import DELIVER, NOTIFY_PERSON, owner_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task, Worker

_DELIVERIES = frozenset({DELIVER, NOTIFY_PERSON})
STUCK_AFTER_MS = 15_000  # a claim loop completes a round at least every few seconds, even when idle


class WorkersLiveness(StrEnum):
    """Whether a worker is making progress."""

    WORKING = auto()  # renews its leases, and its claim loop progresses
    DRAINING = auto()  # claims nothing new, finishes its runs
    STUCK = auto()  # renews its leases, but its claim loop does not progress
    SILENT = auto()  # lost: its leases expire


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker and its liveness."""

    worker: Worker
    liveness: WorkersLiveness
    silent_ms: int = 0  # since its last heartbeat was due
    stuck_ms: int = 0  # since the last round of its claim loop
    only_delivers: bool = False  # a server, which sends webhooks and notifications and runs no tasks

    @property
    def is_live(self) -> bool:
        """Whether it is a worker that renews its leases. A server that only delivers is not a worker."""
        return self.liveness is not WorkersLiveness.SILENT and not self.only_delivers


def view(worker: Worker, *, now: int, steady: int) -> WorkerView:
    """Return a worker with its liveness."""
    silent = max(steady - worker.heartbeat_until, 0)
    still = max(now - max(worker.progress_at, worker.started_at), 0)  # a new worker has not completed a round yet
    if silent:
        liveness = WorkersLiveness.SILENT
    elif worker.draining:
        liveness = WorkersLiveness.DRAINING
    elif still > STUCK_AFTER_MS:
        liveness = WorkersLiveness.STUCK
    else:
        liveness = WorkersLiveness.WORKING
    return WorkerView(
        worker=worker,
        liveness=liveness,
        silent_ms=silent,
        stuck_ms=still,
        only_delivers=bool(worker.names) and _DELIVERIES.issuperset(worker.names),
    )


async def view_workers(stores: Stores) -> list[WorkerView]:
    """Return all registered workers, oldest first."""
    now, steady = stores.clock.now(), stores.clock.steady()
    workers = await stores.workers.list_workers()
    views = [view(worker, now=now, steady=steady) for worker in workers]
    return sorted(views, key=lambda each: (each.worker.started_at, each.worker.id))


_WAITING = frozenset({Status.PENDING, Status.STALLED})


def queued_by_agent(workers: Iterable[WorkerView], counts: Iterable[StatusCount]) -> dict[str, int]:
    """Return for each agent with live workers how many waiting tasks these serve, by queue and name.

    The counters know neither which tasks are due nor what they need, and several agents can serve the same tasks: each
    counts them.
    """
    serving: dict[str, list[Worker]] = {}
    for view in workers:
        if view.worker.agent is not None and view.liveness is not WorkersLiveness.SILENT:
            serving.setdefault(view.worker.agent, []).append(view.worker)
    waiting = [count for count in counts if count.status in _WAITING]
    return {
        agent: sum(count.count for count in waiting if any(_serves(worker, count) for worker in own))
        for agent, own in serving.items()
    }


def _serves(worker: Worker, count: StatusCount) -> bool:
    return count.name in worker.names and (not worker.queues or count.queue in worker.queues)


def without_worker(workers: Collection[WorkerView], counts: Iterable[StatusCount]) -> dict[str, int]:
    """Return how many waiting tasks of each name no live worker claims, because none has the name or its queue."""
    live = [view.worker for view in workers if view.liveness is not WorkersLiveness.SILENT]
    found: dict[str, int] = {}
    for count in counts:
        if count.count and count.status in _WAITING and not any(_serves(worker, count) for worker in live):
            found[count.name] = found.get(count.name, 0) + count.count
    return found


def of_other_versions(workers: Iterable[WorkerView], version: str) -> list[Worker]:
    """Return the live workers of the store that run another version of ADE. A worker behind HTTP can be any program."""
    live = (view.worker for view in workers if view.is_live)
    return [worker for worker in live if worker.version != version and owner_of(worker.id) is None]


async def is_fed(stores: Stores, consumer: str) -> bool:
    """Whether a live worker serves this consumer of inboxes."""
    steady = stores.clock.steady()
    workers = await stores.workers.list_workers()
    return any(consumer in worker.names and worker.heartbeat_until > steady for worker in workers)


def serves(worker: Worker, task: Task) -> bool:
    """Whether this worker has a handler for the task, serves its queue, and has the required capabilities."""
    return has_place(worker, task) and not missing(worker, task)


def has_place(worker: Worker, task: Task) -> bool:
    """Whether this worker has a handler for the task and serves its queue."""
    return task.name in worker.names and (not worker.queues or task.queue in worker.queues)


def missing(worker: Worker, task: Task) -> list[str]:
    """Return the capabilities that the task requires and this worker lacks."""
    return [need for need in task.needs if need not in worker.capabilities]
