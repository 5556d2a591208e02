"""HTTP API of workers: register, list, and deregister, with checks of the task definitions they register.

Workers behind HTTP hold no connection: they send heartbeats or are lost.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from ade.accounts.model import Permission
from ade.agents.model import Agent
from ade.agents.registry import unknown
from ade.errors import InvalidResult, InvalidTask, NotPermitted, StaleLease, UnknownWorker
from ade.server.context import RequestContext, Services, account_of, check_own, cut, scope_of
from ade.server.operation import ReadRule, TrafficClass, operation
from ade.server.pagination import Page
from ade.stores.ports import Stores
from ade.stores.repository import Repository, decided
from ade.tasks.admission import check_queue_name, check_task
from ade.tasks.api.tasks import check_id
from ade.tasks.arguments import CODING_ERRORS, to_json, to_plain
from ade.tasks.enqueue import template_of
from ade.tasks.identifiers import owner_of, worker_id
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Task, Worker, capabilities_of
from ade.tasks.options import NewDefinition, definition_of
from ade.tasks.read_access import bound_names, bound_queues
from ade.worker.api.requests import Claim, ListWorkers, RegisterWorker
from ade.worker.views import WorkerView, view, view_workers

# Names that an account has defined over HTTP. Definitions are permanent, so their number is limited.
# A name is reserved between the check that no other account runs it and its registration.


MOST_NAMES = 1_000
MOST_SCHEMA_BYTES = 1_000_000  # of all their schemas together
RESERVED_MS = 30_000  # far longer than a registration takes


class DefinedNames(Struct, frozen=True, kw_only=True):
    """The names an account has defined over HTTP."""

    sizes: dict[str, int] = {}  # name -> size of its schema in bytes


class ReservedName(Struct, frozen=True, kw_only=True):
    """A short reservation of a name by an account that is about to define it."""

    account: str
    digest: str  # of the definition
    until: int


_SHELF = Repository("web_names", DefinedNames)
_RESERVED = Repository("web_reserved", ReservedName, lambda reserved: reserved.until)


async def reserve_names(stores: Stores, account: str, definitions: Iterable[Definition]) -> None:
    """Reserve names: of two accounts that concurrently define a name differently, one fails. Raises NotPermitted."""
    digests = {each.name: hashlib.sha256(msgspec.json.encode(each)).hexdigest() for each in definitions}

    async def step() -> None:
        now, writes = stores.clock.now(), []
        for (name, digest), kept in zip(digests.items(), await _RESERVED.each(stores, list(digests)), strict=True):
            is_same = kept is not None and kept.record.digest == digest
            if kept is not None and not is_same and kept.record.account != account:
                raise NotPermitted(
                    f"{name} has a different definition by {kept.record.account}; register it with the same definition,"
                    " or under another name"
                )
            if kept is None or not is_same or kept.record.until < now + RESERVED_MS // 2:
                reserved = ReservedName(account=account, digest=digest, until=now + RESERVED_MS)
                put = _RESERVED.put(name, reserved, seen=0 if kept is None else kept.version)
                writes.append(structs.replace(put, is_quiet=True))
        if writes:
            await stores.documents.write(writes)

    await decided(step)


async def note_names(stores: Stores, account: str, sizes: Mapping[str, int]) -> None:
    """Record the names that the account is about to define, with the sizes of their schemas. Raises InvalidTask, and
    records none, if that exceeds the limit of an account.
    """

    async def step() -> None:
        kept = await _SHELF.get(stores, account)
        before = {} if kept is None else kept.record.sizes
        after = {**before, **sizes}
        if after == before:
            return
        _check(account, after)
        put = _SHELF.put(account, DefinedNames(sizes=after), seen=0 if kept is None else kept.version)
        await stores.documents.write([structs.replace(put, is_quiet=True)])

    if sizes:
        await decided(step)


def _check(account: str, sizes: Mapping[str, int]) -> None:
    if len(sizes) > MOST_NAMES:
        raise InvalidTask(
            f"{account} would have defined {len(sizes):,} names, and an account may define {MOST_NAMES:,} over HTTP;"
            " use fewer names and tell them apart by arguments"
        )
    total = sum(sizes.values())
    if total > MOST_SCHEMA_BYTES:
        raise InvalidTask(
            f"the schemas of all names that {account} has defined would have {total:,} bytes, and those of an account"
            f" may have {MOST_SCHEMA_BYTES:,}; make them smaller"
        )


# Workers behind HTTP, and their runs.


async def agent_for(services: Services, request: RequestContext, agent_id: str) -> Agent:
    """Return the agent of a worker: it must exist, and belong to the caller unless they have the `operate` permission.

    Raises UnknownAgent.
    """
    uses = await services.stores.agents.list_agents()
    agent = next((use.agent for use in uses if use.agent.id == agent_id), None)
    if agent is None:
        raise unknown(agent_id)
    if request.caller is not None and Permission.OPERATE not in request.caller.permissions:
        await check_own(services, request, agent_id.partition("/")[0], unknown(agent_id))
    return agent


async def registered(services: Services, request: RequestContext, name: str) -> Worker:
    """Return the caller's worker of this name. Raises UnknownWorker."""
    wanted = worker_id(account_of(request), name)
    found = await worker_of(services, wanted)
    if found is None:
        raise UnknownWorker(f"{wanted} is not registered, or was silent for long; PUT it to /workers first")
    return found


async def worker_of(services: Services, wanted: str | None) -> Worker | None:
    """Return the worker with this ID, or None."""
    return next((worker for worker in await services.stores.workers.list_workers() if worker.id == wanted), None)


async def task_of(services: Services, task_id: str) -> Task | None:
    """Return the task with this ID, or None."""
    check_id(task_id)
    [task] = await services.stores.tasks.get([task_id])
    return task


async def held(services: Services, request: RequestContext, run_id: str, task_id: str) -> Task:
    """Return the task that this run holds, if the run belongs to the caller. Raises StaleLease."""
    return check_held(request, run_id, task_id, await task_of(services, task_id))


def check_held(request: RequestContext, run_id: str, task_id: str, task: Task | None) -> Task:
    """Return the task if this run holds it and belongs to the caller. Raises StaleLease."""
    if (
        task is None
        or task.status is not Status.RUNNING
        or task.run_id != run_id
        or owner_of(task.worker_id or "") != account_of(request)
    ):
        raise StaleLease(f"run {run_id[:60]} does not hold task {task_id} (any more); end it, its outcome is not taken")
    return task


def check_ending(request: RequestContext, run_id: str, task_id: str, task: Task | None) -> Task:
    """Like `check_held`, for the end of a run: a run whose lease expired holds its task until another worker claims it.

    The task is returned as it was in the run.
    """
    if task is not None and task.status is Status.STALLED:
        task = structs.replace(task, status=Status.RUNNING)
    return check_held(request, run_id, task_id, task)


def as_json(value: object) -> Raw:
    """Encode a value of a run as JSON. Raises InvalidResult."""
    try:
        return to_json(to_plain(value))
    except CODING_ERRORS as error:
        raise InvalidResult(f"this cannot be stored as JSON: {error}") from None


# Definitions of workers behind HTTP. They apply to everyone who enqueues the name, so they are checked first.


_LARGEST_SCHEMA = 32_000  # bytes of JSON
_LARGEST_TOGETHER = 256_000  # of all schemas of one worker


async def checked(services: Services, request: RequestContext, forms: Sequence[NewDefinition]) -> list[Definition]:
    """Return the definitions to register.

    Over HTTP, a name that a live worker of another account runs is accepted only with the same definition: a different
    queue, schema, or rate would change the tasks of others. Names of lost workers are free. Raises InvalidTask,
    NotPermitted.
    """
    definitions = [_definition(services, form) for form in forms]
    sizes = {each.name: _size(each) for each in definitions}
    if sum(sizes.values()) > _LARGEST_TOGETHER:
        raise InvalidTask(
            f"the schemas of all definitions have {sum(sizes.values()):,} bytes, and those of one worker may have"
            f" {_LARGEST_TOGETHER:,}; make them smaller, or register more than one worker"
        )
    known = {each.name: each for each in await services.stores.workers.definitions()}
    _check_not_governed(known, definitions)
    changed = {each.name: each for each in definitions if _differs(known.get(each.name), each)}
    if request.caller is not None and changed:
        # First, so that an account without permission cannot reserve the name.
        await _check_not_anothers(services, request, changed)
        await reserve_names(services.stores, account_of(request), changed.values())
        await _check_not_anothers(services, request, changed)  # again: another worker may have registered meanwhile
        await note_names(services.stores, account_of(request), {name: sizes[name] for name in changed})
    others = await _served_by_others(services, request) if request.caller is not None else frozenset()
    return [_with_known_version(each, known.get(each.name)) if each.name in others else each for each in definitions]


def _with_known_version(new: Definition, known: Definition | None) -> Definition:
    """Return the definition with the version that approvals name, which a worker of another account cannot change."""
    return new if known is None else structs.replace(new, version=known.version)


def _differs(known: Definition | None, new: Definition) -> bool:
    """Whether a definition would change the tasks of others. New code does not: an approval covers its own version."""
    return known is None or structs.replace(known, version=new.version) != new


def _definition(services: Services, form: NewDefinition) -> Definition:
    """Validate like the tasks that will be created from it, so that ADE's internal tasks are excluded."""
    _check_schema(form)
    definition = definition_of(form.name, form.options(), form.schema)
    check_task(template_of(definition, services.defaults))
    return definition


def _size(definition: Definition) -> int:
    return 0 if definition.schema is None else len(msgspec.json.encode(definition.schema))


def _check_schema(form: NewDefinition) -> None:
    """Check that the schema is usable, because it validates the arguments of every caller."""
    schema = form.schema
    if schema is None:
        return
    named = f"the schema of {form.name[:120]}"
    if len(msgspec.json.encode(schema)) > _LARGEST_SCHEMA:
        raise InvalidTask(f"{named} has more than {_LARGEST_SCHEMA:,} bytes")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        raise InvalidTask(f"`properties` of {named} is an object of objects")
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise InvalidTask(f"`required` of {named} is a list of names")


def _check_not_governed(known: Mapping[str, Definition], definitions: Sequence[Definition]) -> None:
    """Reject definitions that would replace one with a preview, and thereby remove its approval."""
    for definition in definitions:
        before = known.get(definition.name)
        if before is not None and (before.has_preview or before.has_rollback):
            raise InvalidTask(f"{definition.name} has a preview or a rollback, so that ADE's own workers must run it")


async def _live_workers_of_others(services: Services, request: RequestContext) -> list[Worker]:
    account, steady = account_of(request), services.stores.clock.steady()
    workers = await services.stores.workers.list_workers()
    return [each for each in workers if each.heartbeat_until > steady and owner_of(each.id) != account]


async def _served_by_others(services: Services, request: RequestContext) -> frozenset[str]:
    return frozenset(name for worker in await _live_workers_of_others(services, request) for name in worker.names)


async def _check_not_anothers(services: Services, request: RequestContext, names: Collection[str]) -> None:
    for worker in await _live_workers_of_others(services, request):
        taken = next((name for name in worker.names if name in names), None)
        if taken is not None:
            raise NotPermitted(
                f"{taken} has a different definition by {worker.id}, which is alive and not yours; register it with the"
                " same definition, under another name, or when that worker is gone"
            )


MOST_WORKERS = 1_000  # per account


@operation("GET /workers", reads=ReadRule.SCOPED, permission=Permission.READ)
async def list_workers(services: Services, request: RequestContext, query: ListWorkers) -> Page[WorkerView]:
    """Workers and how they are doing. A limited account sees its own."""
    return cut("workers", query, await _shown(services, request))


@operation("GET /workers/{worker_id}", reads=ReadRule.SCOPED, permission=Permission.READ)
async def get_worker(services: Services, request: RequestContext, worker_id: str) -> WorkerView:
    """One worker."""
    found = next((each for each in await _shown(services, request) if each.worker.id == worker_id), None)
    if found is None:
        raise _unknown(worker_id)
    return found


async def _shown(services: Services, request: RequestContext) -> list[WorkerView]:
    found, scope = await view_workers(services.stores), scope_of(request.caller)
    return found if scope is None else [each for each in found if owner_of(each.worker.id) == scope.account]


@operation("PUT /workers/{worker_id}", permission=Permission.WORK, traffic=TrafficClass.WORK)
async def register_worker(
    services: Services, request: RequestContext, worker_id: str, body: RegisterWorker
) -> WorkerView:
    """Say what a worker is and can run. The response has the id that was made from the name, and the queues and names
    within the binding of the account. The registration counts as a heartbeat of `ttl` seconds."""
    made_id, stores, now = _own(request, worker_id), services.stores, services.stores.clock.now()
    for queue in body.queues:
        check_queue_name(queue)
    agent = None if body.agent is None else await agent_for(services, request, body.agent)
    own = capabilities_of(body.capabilities, "capabilities", InvalidTask)
    hostname, version = _line(body.hostname or request.address or "unknown"), _line(body.version)
    known = await _known(services, request, made_id)
    forms, queues = _bound(request, body)
    definitions = await checked(services, request, forms)
    worker = Worker(
        id=made_id,
        hostname=hostname,
        pid=body.pid,
        started_at=now if known is None else known.started_at,
        version=version,
        queues=queues,
        names=tuple(dict.fromkeys(definition.name for definition in definitions)),
        concurrency=body.concurrency,
        running=0 if known is None else known.running,
        progress_at=now,
        draining=body.draining,
        agent=body.agent,
        capabilities=own if agent is None else tuple(sorted({*own, *agent.capabilities})),
        versions={each.name: each.version for each in forms if each.version},
    )
    ttl_ms = round(body.ttl * 1000)
    await stores.workers.register(worker, definitions, ttl_ms)
    steady = stores.clock.steady()
    return view(structs.replace(worker, heartbeat_until=steady + ttl_ms), now=now, steady=steady)


def bound_claim(request: RequestContext, worker: Worker, body: Claim) -> Claim:
    """Return the claim within the binding of the account, as it is now. Raises NotPermitted if nothing is left."""
    user = None if request.caller is None else request.caller.user
    if user is None or not (user.names or user.queues):
        return body
    names = bound_names(user.id, user.names, worker.names if body.names is None else body.names)
    queues = bound_queues(user.id, user.queues, worker.queues if body.queues is None else body.queues)
    return structs.replace(body, names=sorted(names), queues=list(queues))


def _bound(request: RequestContext, body: RegisterWorker) -> tuple[list[NewDefinition], tuple[str, ...]]:
    """Return the definitions and queues of a worker within the binding of its account. Raises NotPermitted if none is.

    Others are left out, so that no one takes this worker for one that runs them.
    """
    queues, user = tuple(dict.fromkeys(body.queues)), None if request.caller is None else request.caller.user
    if user is None:
        return body.definitions, queues
    names = bound_names(user.id, user.names, (each.name for each in body.definitions))
    return [each for each in body.definitions if each.name in names], bound_queues(user.id, user.queues, queues)


async def _known(services: Services, request: RequestContext, made_id: str) -> Worker | None:
    """Return the earlier registration. A new worker must not exceed the limit, because every claim and readiness check
    reads all workers. Raises InvalidTask.
    """
    workers = {worker.id: worker for worker in await services.stores.workers.list_workers()}
    if made_id not in workers and request.caller is not None:
        account = account_of(request)
        if sum(owner_of(each) == account for each in workers) >= MOST_WORKERS:
            raise InvalidTask(
                f"{account} has {MOST_WORKERS:,} workers, and an account may have no more; those that were silent for"
                " ten minutes are forgotten, and others when they are deregistered"
            )
    return workers.get(made_id)


def _line(text: str) -> str:
    if not text.isprintable():
        raise InvalidTask(f"{text[:60]!r} is not printable")
    return text


@operation("DELETE /workers/{worker_id}", permission=Permission.WORK, traffic=TrafficClass.WORK)
async def deregister_worker(services: Services, request: RequestContext, worker_id: str) -> None:
    """Forget a worker that has handed all back. Runs it has not handed back are reaped when their leases expire."""
    made_id = _own(request, worker_id)
    if all(worker.id != made_id for worker in await services.stores.workers.list_workers()):
        raise _unknown(worker_id)
    await services.stores.workers.deregister(made_id)


def _own(request: RequestContext, name: str) -> str:
    """Return the worker ID in the caller's account (on a local store, the caller itself). Raises UnknownWorker."""
    try:
        return worker_id(account_of(request), name)
    except UnknownWorker:
        raise _unknown(name) from None


def _unknown(worker_id: str) -> UnknownWorker:
    told = f"no worker {worker_id[:120]!r} is known, or it is not yours"
    return UnknownWorker(told, advice=UnknownWorker.usual_advice)
