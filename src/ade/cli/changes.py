"""What becomes of a task, seen whenever something has happened to it."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING

from ade.cli.pages import all_of

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.core.records import Task


async def changes_of(api: "Client", task_id: str) -> "AsyncGenerator[Task, None]":
    """The task as it is, and again after every event; never ends by itself."""
    known = await all_of(api, partial(api.list_task_events, task_id))  # before the task: nothing comes in between
    yield await api.get_task(task_id)
    async for _ in api.follow_events(after=known[-1].seq if known else 0, tasks=[task_id]):
        yield await api.get_task(task_id)
