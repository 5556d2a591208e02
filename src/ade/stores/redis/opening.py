"""Open the store: find the servers, check them, and put the parts together."""

from ade.ports import Clock, InboxStore, Stores
from ade.stores.later import later
from ade.stores.redis.agents import RedisAgents
from ade.stores.redis.blobs import RedisBlobs
from ade.stores.redis.checks import check_servers
from ade.stores.redis.documents import RedisDocuments
from ade.stores.redis.effects import RedisEffects
from ade.stores.redis.hints import RedisHints
from ade.stores.redis.link import Link
from ade.stores.redis.locks import RedisLocks
from ade.stores.redis.log import RedisEvents
from ade.stores.redis.options import RedisOptions
from ade.stores.redis.outputs import RedisOutputs
from ade.stores.redis.places import Partitions
from ade.stores.redis.queues import RedisQueues
from ade.stores.redis.schedules import RedisSchedules
from ade.stores.redis.sweeps import RedisSweeps
from ade.stores.redis.tasks import RedisTasks
from ade.stores.redis.timing import timing_of
from ade.stores.redis.upkeep import RedisUpkeep
from ade.stores.redis.workers import RedisWorkers


async def open_redis(url: str, options: RedisOptions, clock: Clock | None = None, *, queue_depth: int = 0) -> Stores:
    """The stores behind a URL. Raises before anything is written if the servers must not be used."""
    link = Link.to(url, options)
    try:
        await check_servers(link)
        stores, upkeep = _assemble(link, clock, queue_depth)
        await upkeep.epochs.begin()
        return stores
    except BaseException:
        await link.close()
        raise


def _assemble(link: Link, clock: Clock | None, queue_depth: int) -> tuple[Stores, RedisUpkeep]:
    timing, places, hints = timing_of(clock), Partitions(link), RedisHints(link)
    blobs = RedisBlobs(link, timing)

    def inboxes() -> InboxStore:
        from ade.stores.redis.inboxes import RedisInboxes

        return RedisInboxes(link, timing, hints, clock or link.clock)

    async def close() -> None:
        hints.close()
        await link.close()

    upkeep = RedisUpkeep(link, places, timing)
    tasks = RedisTasks(link, places, timing, hints, queue_depth or None)
    stores = Stores(
        tasks=tasks,
        sweeps=RedisSweeps(link, places, timing, blobs),
        workers=RedisWorkers(link, places, timing),
        queues=RedisQueues(link, places, timing),
        events=RedisEvents(link, places, timing),
        effects=RedisEffects(link, timing),
        outputs=RedisOutputs(link, places),
        schedules=RedisSchedules(link, timing),
        blobs=blobs,
        locks=RedisLocks(link, timing, hints),
        agents=RedisAgents(link, timing, hints),
        documents=RedisDocuments(link, timing, hints),
        inboxes=later(inboxes),
        upkeep=upkeep,
        hints=hints,
        clock=clock or link.clock,
        blocking=tasks.blocking,
        closer=close,
    )
    return stores, upkeep
