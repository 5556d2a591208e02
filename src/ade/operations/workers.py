"""Workers, and how those behind HTTP make themselves known. They hold no connection: they are heard of, or silent."""

from msgspec import structs

from ade.core.admission import check_queue_name
from ade.core.capabilities import capabilities_of
from ade.core.errors import InvalidTask, UnknownWorker
from ade.core.records import Worker
from ade.core.web.forms.workers import ListWorkers, RegisterWorker
from ade.core.web.http_workers import owner_of
from ade.core.web.http_workers import worker_id as own_id
from ade.insight.workers import WorkerView, view, view_workers
from ade.operations.defining import checked
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import cut
from ade.operations.remote_workers import account_of, agent_for

MOST_WORKERS = 1_000  # of one account


async def list_workers(office: Office, asked: Asked, query: ListWorkers) -> Page[WorkerView]:
    return cut("workers", query, await view_workers(office.stores))


async def get_worker(office: Office, asked: Asked, worker_id: str) -> WorkerView:
    found = next((each for each in await view_workers(office.stores) if each.worker.id == worker_id), None)
    if found is None:
        raise _unknown(worker_id)
    return found


async def register_worker(office: Office, asked: Asked, worker_id: str, body: RegisterWorker) -> WorkerView:
    """The answer has the id that was made of the name; also this first sign of life counts for `ttl` seconds."""
    made_id, stores, now = _own(asked, worker_id), office.stores, office.stores.clock.now()
    for queue in body.queues:
        check_queue_name(queue)
    agent = None if body.agent is None else await agent_for(office, asked, body.agent)
    own = capabilities_of(body.capabilities, "capabilities", InvalidTask)
    hostname, version = _line(body.hostname or asked.address or "unknown"), _line(body.version)
    known = await _known(office, asked, made_id)
    definitions = await checked(office, asked, body.definitions)
    worker = Worker(
        id=made_id,
        hostname=hostname,
        pid=body.pid,
        started_at=now if known is None else known.started_at,
        version=version,
        queues=tuple(dict.fromkeys(body.queues)),
        names=tuple(dict.fromkeys(definition.name for definition in definitions)),
        concurrency=body.concurrency,
        running=0 if known is None else known.running,
        progress_at=now,
        draining=body.draining,
        agent=body.agent,
        capabilities=own if agent is None else tuple(sorted({*own, *agent.capabilities})),
    )
    ttl_ms = round(body.ttl * 1000)
    await stores.workers.register(worker, definitions, ttl_ms)
    steady = stores.clock.steady()
    return view(structs.replace(worker, heartbeat_until=steady + ttl_ms), now=now, steady=steady)


async def _known(office: Office, asked: Asked, made_id: str) -> Worker | None:
    """As it was registered before. A new one must not be one too many: whoever claims, or asks whether the server is
    ready, has all of them read. Raises InvalidTask."""
    workers = {worker.id: worker for worker in await office.stores.workers.list_workers()}
    if made_id not in workers and asked.caller is not None:
        account = account_of(asked)
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


async def deregister_worker(office: Office, asked: Asked, worker_id: str) -> None:
    """Runs that it has not handed back are taken away from it when their leases run out."""
    made_id = _own(asked, worker_id)
    if all(worker.id != made_id for worker in await office.stores.workers.list_workers()):
        raise _unknown(worker_id)
    await office.stores.workers.deregister(made_id)


def _own(asked: Asked, name: str) -> str:
    """On a local store whoever asks is the account. Raises UnknownWorker."""
    try:
        return own_id(account_of(asked), name)
    except UnknownWorker:
        raise _unknown(name) from None


def _unknown(worker_id: str) -> UnknownWorker:
    told = f"no worker {worker_id[:120]!r} is known, or it is not yours"
    return UnknownWorker(told, advice=UnknownWorker.usual_advice)
