"""The task that notifies a conversation when a run it started has ended. It is stored together with the run.

It depends on the run, whatever the run's outcome, so no crash in between loses the notification. The item's key makes
it idempotent, however often this task runs.
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
    """Return the task that puts a notification into this inbox once the run has ended. Raises InvalidInbox.

    It is a child of neither the run nor the run's parent, because it must survive their cancellation.
    """
    check_inbox_id(inbox_id)
    return Task(
        id=fresh_id(run.created_at),
        name=NOTIFY,
        queue=run.queue,  # a queue that workers with agents already poll
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
    """Handle the notification task. Raises Retry while the inbox is full.

    Its dependency identifies the run: of two runs with one idempotency key, that is the one that was stored.
    """
    own = await get(stores, notify_id)
    [run] = await stores.tasks.get(own.depends_on[:1])
    if run is None:
        return  # pruned: its outcome is unknown
    if not run.is_final:  # it was replayed in the meantime: notify at its next end
        key = f"{run.id}:{run.generation}"
        await enqueue(stores, payloads, [structs.replace(notify_task(run, inbox_id), idempotency_key=key)])
        return
    result = await _result(stores, payloads, run)
    await put_notification(stores, inbox_id, run.id, notification_of(run, result), author=run.author_id)


def key_of(task_id: str) -> str:
    """Return the inbox item key of the notification about this task."""
    return f"task:{task_id}"


async def put_notification(
    stores: Stores, inbox_id: str, task_id: str, text: str, *, author: str | None = None
) -> None:
    """Put one notification per task. Raises Retry while the inbox is full. `author` pays for the turn it triggers."""
    item = NewItem(
        kind=ItemKind.TASK_NOTIFICATION,
        source=ItemSource.TASK_NOTIFICATION,
        text=text,
        key=key_of(task_id),
        author=author if author is not None and is_author(author) else None,  # a task's author can be arbitrary text
    )
    if await DurableInbox(stores, inbox_id).enqueue(item) is None:
        raise Retry(f"the inbox {inbox_id} is full")


async def _result(stores: Stores, payloads: Payloads, run: Task) -> AgentResult | None:
    return result_in(await result_of(stores, payloads, run))
