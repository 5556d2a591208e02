"""What somebody does to a queue as a whole. It is told in the log, as everything that changes what runs."""

from collections.abc import Iterable

from msgspec import structs

from ade.errors import UnknownQueue
from ade.events.model import QUEUE_LIMITED, QUEUE_PAUSED, QUEUE_RESUMED, Event
from ade.stores.ports import WORK, Stores
from ade.tasks.admission import check_queue_name
from ade.tasks.model import Queue


async def get(stores: Stores, name: str, *, new: bool = False) -> Queue:
    """A queue as it stands; with `new` it need not exist yet. Raises UnknownQueue, or InvalidTask for no name."""
    known = {queue.name: queue for queue in await stores.queues.list_queues()}
    if name in known:
        return known[name]
    if not new:
        raise unknown(name, known)
    check_queue_name(name)
    return Queue(name=name)


def unknown(name: str, known: Iterable[str]) -> UnknownQueue:
    """With the one that may have been meant, if there is such a one."""
    from difflib import get_close_matches  # slow to load, and only needed here

    nearest = get_close_matches(name, list(known), n=1)
    if nearest:
        return UnknownQueue(f"no queue {name[:100]!r} exists; did you mean {nearest[0]}?")
    return UnknownQueue(f"no queue {name[:100]!r} exists", advice=f"{UnknownQueue.usual_advice}; --new makes one")


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
