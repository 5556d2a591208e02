"""Opening of the store: connect, check the servers, and assemble the repositories."""

from ade.settings.sections import LimitSettings, RedisSettings
from ade.stores import later
from ade.stores.ports import Clock, Stores
from ade.stores.redis.agents import RedisAgents
from ade.stores.redis.blobs import RedisBlobs
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.documents import RedisDocuments
from ade.stores.redis.effects import RedisEffects, RedisOutputs
from ade.stores.redis.event_log import RedisEvents
from ade.stores.redis.locks import RedisLocks
from ade.stores.redis.maintenance import RedisMaintenance, check_servers
from ade.stores.redis.partitions import Partitions
from ade.stores.redis.queues import RedisQueues, RedisSchedules
from ade.stores.redis.sweeps import RedisSweeps
from ade.stores.redis.tasks import RedisTasks
from ade.stores.redis.upgrade import check_schema, upgrade_redis
from ade.stores.redis.wakeups import RedisWakeups
from ade.stores.redis.workers import RedisWorkers
from ade.stores.resource_ports import InboxStore

__all__ = ["open_redis", "upgrade_redis"]


async def open_redis(
    url: str, settings: RedisSettings, clock: Clock | None = None, *, limits: LimitSettings | None = None
) -> Stores:
    """Open the stores of a URL. Raises before anything is written if the servers are unsuitable."""
    link = RedisClient.to(url, settings, clock)
    try:
        await check_servers(link)
        await check_schema(link)
        stores, maintenance = _assemble(link, limits.queue_depth if limits else 0)
        await maintenance.epochs.begin()
        return stores
    except BaseException:
        await link.close()
        raise


def _assemble(link: RedisClient, queue_depth: int) -> tuple[Stores, RedisMaintenance]:
    places, wakeups = Partitions(link), RedisWakeups(link)
    blobs = RedisBlobs(link)

    def inboxes() -> InboxStore:
        from ade.stores.redis.inboxes import RedisInboxes  # 2 ms, not needed without agents

        return RedisInboxes(link, wakeups)

    async def close() -> None:
        wakeups.close()
        await link.close()

    maintenance = RedisMaintenance(link, places)
    tasks = RedisTasks(link, places, wakeups, queue_depth or None)
    stores = Stores(
        tasks=tasks,
        sweeps=RedisSweeps(link, places, blobs),
        workers=RedisWorkers(link, places),
        queues=RedisQueues(link, places),
        events=RedisEvents(link, places),
        effects=RedisEffects(link, places),
        outputs=RedisOutputs(link, places),
        schedules=RedisSchedules(link),
        blobs=blobs,
        locks=RedisLocks(link, wakeups),
        agents=RedisAgents(link, wakeups),
        documents=RedisDocuments(link, wakeups),
        inboxes=later(inboxes),
        maintenance=maintenance,
        wakeups=wakeups,
        clock=link.clock,
        blocking=tasks.blocking,
        closer=close,
    )
    return stores, maintenance
