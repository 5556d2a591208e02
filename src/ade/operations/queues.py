"""Queues: how full they are, and what somebody does to one as a whole."""

from ade.core.records import Queue
from ade.core.web.forms.queues import LimitQueue, ListQueues, PauseQueue
from ade.insight.overview import QueueView, view_queues
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import cut
from ade.queue import queues as use_cases


async def list_queues(office: Office, asked: Asked, query: ListQueues) -> Page[QueueView]:
    return cut("queues", query, await view_queues(office.stores))


async def get_queue(office: Office, asked: Asked, queue: str) -> QueueView:
    known = {each.name: each for each in await view_queues(office.stores)}
    if queue not in known:
        raise use_cases.unknown(queue, known)
    return known[queue]


async def pause_queue(office: Office, asked: Asked, queue: str, body: PauseQueue) -> Queue:
    known = await use_cases.get(office.stores, queue, new=body.new)
    return await use_cases.pause(office.stores, known, actor=asked.actor)


async def resume_queue(office: Office, asked: Asked, queue: str) -> Queue:
    known = await use_cases.get(office.stores, queue)
    return await use_cases.resume(office.stores, known, actor=asked.actor)


async def limit_queue(office: Office, asked: Asked, queue: str, body: LimitQueue) -> Queue:
    known = await use_cases.get(office.stores, queue, new=body.new)
    return await use_cases.limit(office.stores, known, body.max_depth, actor=asked.actor)
