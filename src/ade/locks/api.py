"""HTTP API of resource locks: list, acquire, renew, upgrade, and release.

A client renews its own locks and loses them when it stops. A request belongs to an account: its ID and its owner start
with the account name, which no other account can use. So an ID seen elsewhere, such as in the event log, is useless to
others: for them it does not exist.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta, field, structs

from ade.accounts.model import Permission
from ade.errors import DeadlockVictim, InvalidLock, LockLost, LockTimeout
from ade.locks.client import LockWaiter, StoreLockClient, place_lost
from ade.locks.model import (
    DEFAULT_NAMESPACE,
    DEFAULT_PRIORITY,
    MAX_LOCK_SPECS,
    LockItem,
    LockMode,
    LockRequest,
    LockSpec,
    LockState,
    is_lock_name,
    lock_name,
    lock_specs_of,
    normal_name,
)
from ade.locks.requests import check_namespace, request_id, ttl_ms_of, validate_request
from ade.locks.views import (
    ForceReleased,
    LockGraph,
    LocksReleased,
    LocksRenewed,
    LockStanding,
    LocksWatched,
    LockView,
    RequestView,
    lock_graph,
    view_locks,
    view_request,
)
from ade.server import request_types
from ade.server.context import RequestContext, Services, cut, readable_ids, scope_of
from ade.server.operation import ReadRule, TrafficClass, operation
from ade.server.pagination import Page
from ade.server.request_types import Form, LockName, PageSize, Priority, described
from ade.stores.ports import LOST
from ade.tasks.identifiers import is_task_id, owner_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.read_access import ReadScope

# Locks of remote clients, which renew their locks and poll for their position in the wait queue.


Standing = LockRequest | None  # the state of a request; None: it is gone


class LockLeases:
    """Server-side lock operations for remote clients, on the lock client of the store. Keeps no state."""

    def __init__(self, client: StoreLockClient) -> None:
        self._client = client
        self._store = client.store
        self._waiting = client.waiting
        self._leaving = client.leaving

    async def lend(self, request: LockRequest, *, wait_ms: int, stays: bool) -> LockRequest:
        """Return the grant if granted in time, else the waiting request; without `stays` it is then removed.

        Repeating a request returns its state. A caller that disconnects leaves the wait queue. Raises LockTimeout,
        DeadlockVictim, TooManyLocks, LockRateLimited, InvalidLock.
        """
        request = await self._client.leased(request)
        await self._client.permit(request)
        in_line_ms = None if stays else wait_ms
        waiter = self._waiting.expect(request, wait_ms=in_line_ms)
        try:
            asking = self._store.acquire(request, wait_ms=in_line_ms, limits=self._client.limits)
            answer = await self._leaving.or_leave(request, asking)
            if answer is not None and not answer.is_granted:
                answer = await self._leaving.or_leave(request, self._stand(waiter, answer, wait_ms, stays=stays))
        finally:
            self._waiting.forget(waiter)
        if answer is None:
            raise LockTimeout(f"{', '.join(request.resources)} is locked by another owner")
        return answer

    async def _stand(self, waiter: LockWaiter, known: LockRequest, wait_ms: int, *, stays: bool) -> Standing:
        """Wait and renew, so that a grant starts with its whole lease. Raises DeadlockVictim."""
        if known.is_waiting and stays and wait_ms <= 0:
            return known
        is_heard = known.is_waiting and await self._hears(waiter, wait_ms)
        if known.is_waiting and not is_heard and not stays:
            await self._leaving.leave(waiter.request)
            return None
        [answer] = await self.renew(known.namespace, [known.id])
        if answer is not None and answer.state is LockState.VICTIM:
            raise DeadlockVictim(f"the wait for {', '.join(answer.resources)} was part of a deadlock", answer.seq)
        if answer is None and stays:
            raise place_lost(known)
        return answer

    async def _hears(self, waiter: LockWaiter, wait_ms: int, *, look_at_once: bool = False) -> bool:
        """Whether it left the wait queue in time. Raises LockTimeout, DeadlockVictim."""
        if wait_ms <= 0:
            return False
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._waiting.wait(waiter, look_at_once=look_at_once)
        except TimeoutError:
            return False
        return True

    async def renew(self, namespace: str, ids: Sequence[str]) -> list[Standing]:
        """Renew the leases of grants and of waiters; None for those that are gone."""
        standing = dict(zip(ids, await self._store.renew(namespace, ids), strict=True))
        others = [request_id for request_id, grant in standing.items() if grant is None]
        if others:
            standing |= zip(others, await self._store.poll(namespace, others), strict=True)
        return [standing[request_id] for request_id in ids]

    async def renew_in_line(self, namespace: str, ids: Sequence[str], *, wait_ms: int) -> list[Standing]:
        """Renew; if all of them wait, first wait up to `wait_ms` until one of them no longer does."""
        standing = await self.renew(namespace, ids)
        in_line = [one for one in standing if one is not None and one.is_waiting]
        if wait_ms <= 0 or len(in_line) < len(ids):
            return standing
        waiters = [self._waiting.expect(one) for one in in_line]
        jobs = [asyncio.ensure_future(self._waiting.wait(waiter, look_at_once=True)) for waiter in waiters]
        try:
            await asyncio.wait(jobs, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job, waiter in zip(jobs, waiters, strict=True):
                job.cancel()
                self._waiting.forget(waiter)
            await asyncio.gather(*jobs, return_exceptions=True)
        return await self.renew(namespace, ids)

    async def upgrade(self, grant: LockRequest, resource: str, *, wait_ms: int) -> LockRequest:
        """Make a shared lock exclusive, ahead of all waiters. Raises LockTimeout, LockLost, UpgradeDeadlock."""
        upgrade_id = os.urandom(16).hex()
        answer = await self._store.upgrade(
            grant.namespace, grant.id, resource, upgrade_id=upgrade_id, wait_ms=max(wait_ms, 0)
        )
        if answer is not None and answer.id != grant.id:
            waiter = self._waiting.expect(answer)
            try:
                await self._leaving.or_leave(answer, self._hears(waiter, wait_ms, look_at_once=True))
            finally:
                self._waiting.forget(waiter)
            await self._leaving.leave(answer)
            [answer] = await self._store.renew(grant.namespace, [grant.id])
            if answer is None:
                raise LockLost(f"the lock on {resource} expired while it waited for its upgrade")
        if answer is None or answer.mode_of(resource) is not LockMode.EXCLUSIVE:
            raise LockTimeout(f"others share the lock on {resource}")
        return answer


# Requests. A request ID is known only to its owner, and is sent only in bodies.


LONGEST_WAIT_S = 30
Namespace = Annotated[request_types.Namespace, Meta(min_length=1, max_length=100)]
RequestId = Annotated[str, Meta(min_length=1, max_length=512)]
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT_S)]  # seconds


class ListLocks(Form):
    """Resources that somebody holds or waits for; all that is said must hold."""

    namespace: Namespace | None = None
    owner: LockName | None = None
    resource: LockName | None = None  # needs its namespace; the default namespace otherwise
    kind: LockName | None = None  # the part of a resource's name before the colon
    cursor: str | None = None
    limit: PageSize = 50


class GetLockGraph(Form):
    """The namespace whose wait graph is returned."""

    namespace: Namespace = DEFAULT_NAMESPACE


class AcquireLocks(Form):
    """All or none of them. A bare name is to be written.

    What is not granted within `wait` seconds is refused, or with `stay` answered as it stands in line: the place is
    kept by renewing it. Whoever goes away while it waits has left the line.
    """

    json_names: ClassVar[Mapping[str, str]] = {"ttl": "ttl_ms"}

    locks: Annotated[list[LockName | LockSpec], Meta(min_length=1, max_length=MAX_LOCK_SPECS)]
    id: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{16,100}$")] | None = None  # random; makes the request idempotent
    owner: Annotated[LockName, Meta(min_length=1)] | None = None  # one of several programs that share an account
    # Groups requests of one program, so that deadlocks are detected.
    scope: Annotated[LockName, Meta(min_length=1)] | None = None
    namespace: Namespace = DEFAULT_NAMESPACE
    priority: Priority = DEFAULT_PRIORITY
    ttl: Annotated[float, described(minimum=1, maximum=3_600)] | None = None  # seconds; default: from the settings
    purpose: Annotated[str, described(minLength=1, maxLength=500)] | None = None
    wait: Wait | None = None
    stay: bool = False
    # The run of the caller that asks, and its task, whose author must be allowed to lock this. Others' are ignored.
    run: Annotated[str, Meta(max_length=60)] | None = None
    run_task: Annotated[str, Meta(max_length=60)] | None = None


class RenewLocks(Form):
    """Locks, and places in line. If all of these wait in line, the answer comes once one does not any more."""

    ids: Annotated[list[RequestId], Meta(min_length=1, max_length=100)]
    namespace: Namespace = DEFAULT_NAMESPACE
    wait: Wait | None = None


class WatchLocks(Form):
    """Locks that the caller holds, and its runs with the IDs of their tasks, whose locks came with the claim."""

    ids: Annotated[list[RequestId], Meta(max_length=100)] = field(default_factory=list)
    namespace: Namespace = DEFAULT_NAMESPACE
    runs: Annotated[dict[str, str], Meta(max_length=100)] = field(default_factory=dict)
    wait: Wait | None = None


class ReleaseLocks(Form):
    """The lock requests to release."""

    ids: Annotated[list[RequestId], Meta(min_length=1, max_length=100)]
    namespace: Namespace = DEFAULT_NAMESPACE


class OneLock(Form):
    """A lock request in a namespace."""

    id: RequestId
    namespace: Namespace = DEFAULT_NAMESPACE


class DowngradeLock(OneLock):
    """The lock to change from exclusive to shared."""

    resource: str | None = None  # required if several resources are locked


class UpgradeLock(DowngradeLock):
    """The lock to change from shared to exclusive, and how long to wait for that."""

    wait: Wait | None = None


class ForceRelease(OneLock, kw_only=True):
    """Why an operator releases the lock of another owner."""

    reason: Annotated[str, Meta(min_length=1, max_length=500)]


@operation("GET /locks", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_locks(services: Services, request: RequestContext, query: ListLocks) -> Page[LockView]:
    """Who holds and waits for what."""
    namespace = query.namespace or (DEFAULT_NAMESPACE if query.resource is not None else None)
    if namespace is not None:
        check_namespace(namespace)
    named = {"owner": query.owner, "resource": query.resource, "kind": query.kind}
    names = {what: None if name is None else lock_name(what, name) for what, name in named.items()}
    scope = scope_of(request.caller)
    if scope is not None and query.owner is not None and not _is_owner(scope.account, query.owner):
        return Page(items=[])
    seen = await view_locks(services.stores, namespace=namespace, **names)
    return cut("locks", query, seen if scope is None else await _without_others(services, scope, seen))


async def _without_others(services: Services, scope: ReadScope, seen: Sequence[LockView]) -> list[LockView]:
    """Return the locks with what a limited account reads of others: that they hold or wait, in which mode, until
    when."""
    ids = (each.task_id for one in seen for each in (*one.holders, *one.waiters) if each.task_id is not None)
    shown = await readable_ids(services, scope, ids)

    def visible(each: LockStanding) -> LockStanding:
        if each.task_id in shown or (each.task_id is None and _is_owner(scope.account, each.owner)):
            return each
        return structs.replace(each, request_id="", owner="", scope="", token=None, purpose=None, task_id=None)

    return [
        structs.replace(one, holders=[*map(visible, one.holders)], waiters=[*map(visible, one.waiters)], deadlock=[])
        for one in seen
    ]


def _is_owner(account: str, owner: str) -> bool:
    return owner == account or owner.startswith(f"{account}/")


@operation("GET /locks/graph", reads=ReadRule.ALL, permission=Permission.READ)
async def get_lock_graph(services: Services, request: RequestContext, query: GetLockGraph) -> LockGraph:
    """Who waits for whom, and the rings among them.

    Waits in other namespaces are included if one of the two also holds or waits for something in this one."""
    check_namespace(query.namespace)
    return await lock_graph(services.stores, query.namespace)


@operation("POST /locks/acquire", permission=Permission.ENQUEUE, traffic=TrafficClass.LOCK, takes_key=False)
async def acquire_locks(services: Services, request: RequestContext, body: AcquireLocks) -> RequestView:
    """Ask for locks, all or none; may wait for them."""
    owner, key = _owner(request, body.owner), body.id or os.urandom(16).hex()
    lock_request = validate_request(
        id=_own_prefix(request) + key,
        owner=owner,
        scope=f"{owner}:{body.scope}" if body.scope else os.urandom(16).hex(),
        wanted=lock_specs_of(body.locks),
        namespace=body.namespace,
        priority=body.priority,
        purpose=body.purpose,
        ttl_ms=ttl_ms_of(body.ttl),
        account=await _account(services, request, body),
    )
    answer = await LockLeases(services.locks()).lend(
        lock_request, wait_ms=_wait_ms(request, body.wait), stays=body.stay
    )
    if _wishes(answer.items) != _wishes(lock_request.items):
        raise InvalidLock(f"the id {key!r} was used for other resources before; use a new one")
    return await view_request(services.stores, answer)


async def _account(services: Services, request: RequestContext, body: AcquireLocks) -> str | None:
    """Return on whose behalf a lock is requested: the caller's, or for a run of its worker, the author's."""
    if body.run is not None and body.run_task is not None and await services.locks().has_rules():
        of_run = await _own_runs(services, request, {body.run: body.run_task})
        if of_run:
            return of_run[body.run].author_id
    return request.author if request.caller is None else request.caller.user.id


def _wishes(items: Sequence[LockItem]) -> list[LockSpec]:
    return [LockSpec(item.resource, item.mode) for item in items]


def _owner(request: RequestContext, name: str | None) -> str:
    """Return the lock owner: the account, or one of its programs. On a local store any name is allowed."""
    if request.caller is None:
        return name or request.actor
    account = request.caller.user.id
    if name is None or name == account or name.startswith(f"{account}/"):
        return name or account
    return f"{account}/{name}"


def _own_prefix(request: RequestContext) -> str:
    """Return the prefix of the caller's request IDs. Account names contain no colon."""
    return "" if request.caller is None else f"{request.caller.user.id}:"


def _wait_ms(request: RequestContext, wait: float | None) -> int:
    return round(min(request.wait_s if wait is None else wait, LONGEST_WAIT_S) * 1000)


@operation("POST /locks/renew", permission=Permission.ENQUEUE, traffic=TrafficClass.WORK, takes_key=False)
async def renew_locks(services: Services, request: RequestContext, body: RenewLocks) -> LocksRenewed:
    """Keep locks, or a place in line. Raises LockLost or DeadlockVictim when none of them is left."""
    check_namespace(body.namespace)
    own = _own(request, body.ids)
    lender, wait_ms = LockLeases(services.locks()), _wait_ms(request, body.wait)
    standing = await lender.renew_in_line(body.namespace, own, wait_ms=wait_ms) if own else []
    known = {one.id: one for one in standing if one is not None}
    gave_way = [one.id for one in known.values() if one.state is LockState.VICTIM]
    renewed = [await view_request(services.stores, one) for one in known.values() if one.id not in gave_way]
    if not renewed and gave_way:
        raise DeadlockVictim(f"the wait under {gave_way[0]!r} was part of a deadlock")
    if not renewed:
        raise _lost(body.ids[0])
    kept = {one.id for one in renewed}
    return LocksRenewed(
        renewed=renewed, lost=[each for each in dict.fromkeys(body.ids) if each not in kept], gave_way=gave_way
    )


@operation(
    "POST /locks/watch", reads=ReadRule.OWN, permission=Permission.ENQUEUE, mutates=False, traffic=TrafficClass.WORK
)
async def watch_locks(services: Services, request: RequestContext, body: WatchLocks) -> LocksWatched:
    """Watch for a forced release of a lock. Returns as soon as one happens, or after `wait` seconds."""
    check_namespace(body.namespace)
    own, wakeups = _own(request, body.ids), services.stores.wakeups
    own_runs = await _own_runs(services, request, body.runs)
    of_runs = {run_id: request_id(task) for run_id, task in own_runs.items() if task.locks}
    end = asyncio.get_running_loop().time() + _wait_ms(request, body.wait) / 1000
    while True:
        seen = wakeups.generation(LOST)
        lost = await _missing(services, body.namespace, own)
        lost_of_tasks = set(await _missing(services, DEFAULT_NAMESPACE, list(of_runs.values())))
        lost_runs = [run_id for run_id, lock_id in of_runs.items() if lock_id in lost_of_tasks]
        left = end - asyncio.get_running_loop().time()
        if lost or lost_runs or left <= 0:
            return LocksWatched(lost=lost, lost_runs=lost_runs)
        await wakeups.wait(LOST, seen, left)


async def _missing(services: Services, namespace: str, ids: Sequence[str]) -> list[str]:
    found = await services.stores.locks.look(namespace, ids) if ids else []
    return [each for each, one in zip(ids, found, strict=True) if one is None or not one.is_granted]


async def _own_runs(services: Services, request: RequestContext, runs: Mapping[str, str]) -> dict[str, Task]:
    """Return the tasks of the caller's runs; other runs, and those that are over, are left out."""
    named = [(run_id, task_id) for run_id, task_id in runs.items() if is_task_id(task_id)]
    found = await services.stores.tasks.get([task_id for _, task_id in named]) if named else []
    return {
        run_id: task
        for (run_id, _), task in zip(named, found, strict=True)
        if task is not None and task.run_id == run_id and task.status is Status.RUNNING
        if request.caller is None or owner_of(task.worker_id or "") == request.caller.user.id
    }


@operation("POST /locks/release", permission=Permission.ENQUEUE, traffic=TrafficClass.WORK, takes_key=False)
async def release_locks(services: Services, request: RequestContext, body: ReleaseLocks) -> LocksReleased:
    """Let locks go, or leave the line."""
    check_namespace(body.namespace)
    own = _own(request, body.ids)
    gone = await services.stores.locks.release(body.namespace, own) if own else []
    released = [one.id for one in gone if one is not None]
    return LocksReleased(released=released, lost=[each for each in dict.fromkeys(body.ids) if each not in released])


def _own(request: RequestContext, ids: Sequence[str]) -> list[str]:
    """Return the IDs that can belong to the caller, without duplicates; the others are not looked up."""
    prefix = _own_prefix(request)
    return [each for each in dict.fromkeys(ids) if each.startswith(prefix) and is_lock_name(each)]


@operation("POST /locks/upgrade", permission=Permission.ENQUEUE, traffic=TrafficClass.LOCK, takes_key=False)
async def upgrade_lock(services: Services, request: RequestContext, body: UpgradeLock) -> RequestView:
    """Make a share exclusive."""
    grant = await _held(services, request, body)
    wait_ms = _wait_ms(request, body.wait)
    widened = await LockLeases(services.locks()).upgrade(grant, _named(grant, body.resource), wait_ms=wait_ms)
    return await view_request(services.stores, widened)


@operation("POST /locks/downgrade", permission=Permission.ENQUEUE, traffic=TrafficClass.WORK, takes_key=False)
async def downgrade_lock(services: Services, request: RequestContext, body: DowngradeLock) -> RequestView:
    """Make it a share again."""
    grant = await _held(services, request, body)
    shared = await services.stores.locks.downgrade(grant.namespace, grant.id, _named(grant, body.resource))
    return await view_request(services.stores, shared)


async def _held(services: Services, request: RequestContext, body: OneLock) -> LockRequest:
    """Return the caller's lock. Raises LockLost, with the same message if it belongs to another account."""
    check_namespace(body.namespace)
    found = await services.stores.locks.look(body.namespace, own) if (own := _own(request, [body.id])) else [None]
    steady = services.stores.clock.steady()
    if found[0] is None or found[0].lease_until <= steady:
        raise _lost(body.id)
    return found[0]


def _lost(request_id: str) -> LockLost:
    return LockLost(
        f"you have no lock and no place in line under {request_id[:120]!r}: it expired, was revoked, or never existed"
    )


def _named(grant: LockRequest, resource: str | None) -> str:
    if resource is None and len(grant.resources) == 1:
        return grant.resources[0]
    name = normal_name(resource or "")
    if name not in grant.resources:
        raise InvalidLock(f"name one of the resources that are locked: {', '.join(grant.resources)}"[:1_000])
    return name


@operation(
    "POST /locks/position", reads=ReadRule.OWN, permission=Permission.ENQUEUE, mutates=False, traffic=TrafficClass.WORK
)
async def get_lock_position(services: Services, request: RequestContext, body: OneLock) -> RequestView:
    """One's place in line."""
    return await view_request(services.stores, await _held(services, request, body))


@operation("POST /locks/force-release", permission=Permission.OPERATE)
async def force_release_lock(services: Services, request: RequestContext, body: ForceRelease) -> ForceReleased:
    """Take a lock away from its holder."""
    check_namespace(body.namespace)
    taken, named = None, normal_name(body.id)
    if is_lock_name(named):
        taken = await services.stores.locks.take_away(body.namespace, named, reason=body.reason, by=request.actor)
    if taken is None:
        raise LockLost(
            f"no request {body.id[:100]!r} stands in namespace {body.namespace}", advice="`ade locks show` lists them"
        )
    return ForceReleased(request_id=taken.id, owner=taken.owner, resources=taken.resources)
