"""Queues: how full they are, and what somebody does to one as a whole."""

from typing import Annotated

from msgspec import Meta

from ade.accounts.model import Permission
from ade.server.operations import RequestContext, Services, cut
from ade.server.pagination import Page
from ade.server.registry import operation
from ade.server.request_types import Form, PageSize
from ade.tasks import queues
from ade.tasks.model import Queue
from ade.tasks.overview import QueueView, view_queues

# What is said about queues.


class ListQueues(Form):
    cursor: str | None = None
    limit: PageSize = 50


class PauseQueue(Form):
    new: bool = False  # the queue need not exist yet


class LimitQueue(Form):
    """Without `max_depth` there is no limit."""

    max_depth: Annotated[int, Meta(ge=1, le=999_999_999)] | None = None  # unfinished tasks that it takes in
    new: bool = False  # the queue need not exist yet


@operation("GET /queues", permission=Permission.READ)
async def list_queues(office: Services, asked: RequestContext, query: ListQueues) -> Page[QueueView]:
    """Queues with their depths and ages."""
    return cut("queues", query, await view_queues(office.stores))


@operation("GET /queues/{queue}", permission=Permission.READ)
async def get_queue(office: Services, asked: RequestContext, queue: str) -> QueueView:
    """One queue."""
    known = {each.name: each for each in await view_queues(office.stores)}
    if queue not in known:
        raise queues.unknown(queue, known)
    return known[queue]


@operation("POST /queues/{queue}/pause", permission=Permission.OPERATE)
async def pause_queue(office: Services, asked: RequestContext, queue: str, body: PauseQueue) -> Queue:
    """Claim nothing from it."""
    known = await queues.get(office.stores, queue, new=body.new)
    return await queues.pause(office.stores, known, actor=asked.actor)


@operation("POST /queues/{queue}/resume", permission=Permission.OPERATE)
async def resume_queue(office: Services, asked: RequestContext, queue: str) -> Queue:
    """Claim from it again."""
    known = await queues.get(office.stores, queue)
    return await queues.resume(office.stores, known, actor=asked.actor)


@operation("PUT /queues/{queue}/limits", permission=Permission.OPERATE)
async def limit_queue(office: Services, asked: RequestContext, queue: str, body: LimitQueue) -> Queue:
    """Change how many tasks it takes."""
    known = await queues.get(office.stores, queue, new=body.new)
    return await queues.limit(office.stores, known, body.max_depth, actor=asked.actor)
