"""What somebody does to a queue as a whole. It is told in the log, as everything that changes what runs."""

from msgspec import structs

from ade.core.events import QUEUE_LIMITED, QUEUE_PAUSED, QUEUE_RESUMED, Event
from ade.core.records import Queue
from ade.ports import WORK, Stores


async def pause(stores: Stores, queue: Queue, *, actor: str | None = None) -> Queue:
    """Let no more of its tasks be claimed."""
    return await _store(stores, structs.replace(queue, paused=True), QUEUE_PAUSED, actor, {})


async def resume(stores: Stores, queue: Queue, *, actor: str | None = None) -> Queue:
    """Let its tasks be claimed again."""
    return await _store(stores, structs.replace(queue, paused=False), QUEUE_RESUMED, actor, {})


async def limit(stores: Stores, queue: Queue, max_depth: int | None, *, actor: str | None = None) -> Queue:
    """Refuse new tasks while it has so many unfinished ones; None takes the limit away."""
    limited = structs.replace(queue, max_depth=max_depth)
    return await _store(stores, limited, QUEUE_LIMITED, actor, {"max_depth": max_depth})


async def _store(stores: Stores, queue: Queue, kind: str, actor: str | None, about: dict[str, object]) -> Queue:
    event = Event(type=kind, at=stores.clock.now(), actor=actor, payload={"queue": queue.name, **about})
    await stores.queues.configure(queue, event)
    if not queue.paused:
        stores.hints.ring(WORK)
    return queue
