"""Telling a conversation that a run it asked for has ended: by a task of its own, stored together with the run.

It waits for the run, however that ends, so no death of anybody in between leaves the conversation without an answer.
The key of the item makes it one answer, however often this task is run.
"""

import msgspec
from msgspec import Raw, structs

from ade.accounts.model import SYSTEM
from ade.agents.conversations.durable_inbox import DurableInbox
from ade.agents.conversations.model import ItemKind, ItemSource, NewItem, is_author
from ade.agents.runs.messages import notification_of
from ade.agents.runs.model import AgentResult, result_in
from ade.failures import Backoff
from ade.stores.ports import Stores
from ade.tasks.enqueue import enqueue, fresh_id
from ade.tasks.identifiers import NOTIFY, check_inbox_id
from ade.tasks.model import AfterFailure, Task
from ade.tasks.outcomes import Retry
from ade.tasks.payloads import Payloads
from ade.tasks.service import get, result_of

MOST_ATTEMPTS = 1000
BACKOFF = Backoff(base_ms=1_000, cap_ms=60_000)


def notify_task(run: Task, inbox_id: str) -> Task:
    """The task that puts a notification into this inbox once the run has ended. Raises InvalidInbox.

    It is no child of the run, nor of the run's parent: it must outlive their cancellation.
    """
    check_inbox_id(inbox_id)
    return Task(
        id=fresh_id(run.created_at),
        name=NOTIFY,
        queue=run.queue,  # where somebody looks who has agents
        args=Raw(msgspec.json.encode({"inbox": inbox_id})),
        priority=run.priority,
        description=f"notification of {inbox_id}",
        depends_on=(run.id,),
        after_failure=AfterFailure.RUN,
        source=SYSTEM,
        author_id=run.author_id,
        max_attempts=MOST_ATTEMPTS,
        backoff=BACKOFF,
    )


async def notify(stores: Stores, payloads: Payloads, notify_id: str, inbox_id: str) -> None:
    """What the task does. Raises Retry while the inbox is full.

    What it waited for names the run: of two runs with one idempotency key, that is the one that was stored.
    """
    own = await get(stores, notify_id)
    [run] = await stores.tasks.get(own.depends_on[:1])
    if run is None:
        return  # pruned; nobody can tell how it ended
    if not run.is_final:  # somebody was so quick as to let it run again: tell of its next end
        key = f"{run.id}:{run.generation}"
        await enqueue(stores, payloads, [structs.replace(notify_task(run, inbox_id), idempotency_key=key)])
        return
    result = await _result(stores, payloads, run)
    await put_notification(stores, inbox_id, run.id, notification_of(run, result), author=run.author_id)


def key_of(task_id: str) -> str:
    """Of the notification about this task, among the keys of an inbox."""
    return f"task:{task_id}"


async def put_notification(
    stores: Stores, inbox_id: str, task_id: str, text: str, *, author: str | None = None
) -> None:
    """Once for each task. Raises Retry while the inbox is full. `author` pays for the turn that it wakes."""
    item = NewItem(
        kind=ItemKind.TASK_NOTIFICATION,
        source=ItemSource.TASK_NOTIFICATION,
        text=text,
        key=key_of(task_id),
        author=author if author is not None and is_author(author) else None,  # a task's may be any text
    )
    if await DurableInbox(stores, inbox_id).enqueue(item) is None:
        raise Retry(f"the inbox {inbox_id} is full")


async def _result(stores: Stores, payloads: Payloads, run: Task) -> AgentResult | None:
    return result_in(await result_of(stores, payloads, run))
