"""The consumer that feeds an agent: every batch is one turn, and every turn is a task of the agent's type.

Which items a turn has and which task it is, is remembered before the task is enqueued. So whoever takes over after a
crash takes the same items and finds the same task, and no item is told to the agent twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, structs

from ade.agents.inboxes import DurableInbox
from ade.agents.pumping.consuming import GiveUp
from ade.agents.pumping.pinned import BegunTurn, begun_in, with_turn, without_turn
from ade.agents.pumping.sessions import Said, after_turn, ids_of
from ade.core.agent_runs.names import task_name
from ade.core.agent_runs.results import progress_in, result_in
from ade.core.errors import AdeError, NotConfirmed, QueueFull, StoreCorrupt, StoreError, StoreUnavailable
from ade.core.inbox.items import COALESCABLE, DequeuedBatch, Part
from ade.core.inbox.notices import ClearReason
from ade.core.inbox.state import Inbox
from ade.core.inbox.turns import merged_content
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.ports import Stores
from ade.queue.ids import fresh_id
from ade.queue.payloads import Payloads
from ade.queue.waiting import FinishWatch

Enqueue = Callable[[Sequence[Task]], Awaitable[list[Task]]]
_PAGE = 500
_LONGEST_DESCRIPTION = 60
_AGAIN_S = 0.5  # after the store could not be reached


class AgentTurns:
    """Feeds agents of one type. Belongs to one event loop.

    `enqueue` is the app's way, with its guard. `template` is what its tasks have in common, such as a time-out; `usual`
    are arguments that every turn gets, such as a model. `author_id` is whose budget pays for what nobody has said.

    Answers to questions are not told to the agent: they are for whoever asked, and stay until he takes them.
    """

    waking = COALESCABLE

    def __init__(
        self,
        stores: Stores,
        enqueue: Enqueue,
        profile_type: str,
        *,
        template: Task | None = None,
        usual: Mapping[str, Any] | None = None,
        author_id: str | None = None,
    ) -> None:
        self.name = task_name(profile_type)
        self._template = template or Task(id="", name=self.name)
        self._stores = stores
        self._enqueue = enqueue
        self._usual = dict(usual or {})
        self._author_id = author_id
        self._payloads = Payloads(stores.blobs)
        self._watch = FinishWatch(stores)
        self._under_way: dict[str, str] = {}  # the tasks that are waited for, by their inboxes

    async def __call__(self, batch: DequeuedBatch, inbox: Inbox) -> dict[str, Any]:
        memory, turn = without_turn(inbox.memory), begun_in(inbox.memory)
        if turn is not None and not turn.covers(batch):  # its items were removed, but perhaps it goes on
            memory = await self._after_earlier(memory, turn, inbox)
            turn = None
        if turn is None:
            turn = BegunTurn(
                first=batch.items[0].seq, last=batch.items[-1].seq, task=fresh_id(self._stores.clock.now())
            )
            await self._remember(inbox, with_turn(memory, turn))
        ended = await self._ended(await self._begun(turn, batch, inbox, memory), inbox)
        if not turn.is_reset:
            memory = after_turn(memory, ids_of(batch, memory), ended, await self._said_by(ended))
        if ended.status is not Status.COMPLETED:  # it can be replayed; its items are not told again
            raise GiveUp(_reason(ended), f"task {ended.id} is {ended.status}", memory)
        return memory

    async def only_waiting(self) -> list[str]:
        """Those whose task is not running: it waits for a worker, for its time, or for people."""
        under_way = list(self._under_way.items())
        found = []
        for start in range(0, len(under_way), _PAGE):
            page = under_way[start : start + _PAGE]
            tasks = await self._stores.tasks.get([task_id for _, task_id in page])
            found += [
                inbox_id
                for (inbox_id, _), task in zip(page, tasks, strict=True)
                if task is not None and task.status is not Status.RUNNING
            ]
        return found

    async def _after_earlier(self, memory: dict[str, Any], turn: BegunTurn, inbox: Inbox) -> dict[str, Any]:
        """Two turns of a conversation at once would not know of each other."""
        [task] = await self._stores.tasks.get([turn.task])
        if task is None:
            return memory
        ended = await self._ended(task, inbox)
        return memory if turn.is_reset else after_turn(memory, memory, ended, await self._said_by(ended))

    async def _begun(self, turn: BegunTurn, batch: DequeuedBatch, inbox: Inbox, memory: dict[str, Any]) -> Task:
        [known] = await self._stores.tasks.get([turn.task])
        if known is not None:
            return known
        task = self._task(turn, batch, inbox, memory)
        try:
            [stored] = await self._enqueue([task])
        except NotConfirmed:
            return task
        except (StoreError, QueueFull):
            raise
        except AdeError as error:  # not today and not tomorrow
            raise GiveUp(ClearReason.ERROR, f"{error.code}: {error.detail}", memory) from error
        return stored

    def _task(self, turn: BegunTurn, batch: DequeuedBatch, inbox: Inbox, memory: dict[str, Any]) -> Task:
        # All turns share a folder: agents find their sessions by it.
        prompt = prompt_of(batch)
        args = {"workspace": inbox.id, **self._usual, "prompt": prompt, **ids_of(batch, memory)}
        return structs.replace(
            self._template,
            id=turn.task,
            args=Raw(msgspec.json.encode(args)),
            description=prompt.strip().partition("\n")[0][:_LONGEST_DESCRIPTION] or f"conversation {inbox.id}",
            idempotency_key=f"turn:{inbox.id}:{turn.task}",  # seqs come again when an inbox was forgotten
            concurrency_key=f"conversation:{inbox.id}",  # for one that is replayed beside the next
            author_id=next((item.author for item in batch.items if item.author), self._author_id),
            source="agent",
        )

    async def _ended(self, task: Task, inbox: Inbox) -> Task:
        """Waits as long as it takes; who holds the batch no longer is cancelled. Raises UnknownTask.

        A task that was stored and never confirmed may be gone: then the batch comes again, and it is enqueued again.
        """
        self._under_way[inbox.id] = task.id
        try:
            while True:
                try:
                    return await self._watch.wait(task.id)
                except StoreUnavailable:
                    await asyncio.sleep(_AGAIN_S)
        finally:
            self._under_way.pop(inbox.id, None)

    async def _said_by(self, task: Task) -> Said:
        if task.result is None:
            return progress_in(task.progress)
        try:
            return result_in(await self._payloads.load(task.result))
        except StoreCorrupt:  # the blob is lost: the conversation goes on with what it knew before
            return None

    async def _remember(self, inbox: Inbox, memory: dict[str, Any]) -> None:
        assert inbox.lease is not None
        await DurableInbox(self._stores, inbox.id).remember(inbox.lease.id, memory)


def prompt_of(batch: DequeuedBatch) -> str:
    """All items as one text, in order; a part that is no text is given as JSON."""
    return "".join(_as_text(part) for part in merged_content(batch.items) or [])


def _as_text(part: Part) -> str:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    return msgspec.json.encode(part).decode()


def _reason(ended: Task) -> ClearReason:
    return ClearReason.CANCELLED if ended.status in (Status.CANCELLED, Status.REJECTED) else ClearReason.ERROR
