"""Queues: how full they are, and what somebody does to one as a whole."""

from typing import Annotated

from msgspec import Meta

from ade.server.operations import RequestContext, Services, cut
from ade.server.pagination import Page
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


async def list_queues(office: Services, asked: RequestContext, query: ListQueues) -> Page[QueueView]:
    return cut("queues", query, await view_queues(office.stores))


async def get_queue(office: Services, asked: RequestContext, queue: str) -> QueueView:
    known = {each.name: each for each in await view_queues(office.stores)}
    if queue not in known:
        raise queues.unknown(queue, known)
    return known[queue]


async def pause_queue(office: Services, asked: RequestContext, queue: str, body: PauseQueue) -> Queue:
    known = await queues.get(office.stores, queue, new=body.new)
    return await queues.pause(office.stores, known, actor=asked.actor)


async def resume_queue(office: Services, asked: RequestContext, queue: str) -> Queue:
    known = await queues.get(office.stores, queue)
    return await queues.resume(office.stores, known, actor=asked.actor)


async def limit_queue(office: Services, asked: RequestContext, queue: str, body: LimitQueue) -> Queue:
    known = await queues.get(office.stores, queue, new=body.new)
    return await queues.limit(office.stores, known, body.max_depth, actor=asked.actor)
