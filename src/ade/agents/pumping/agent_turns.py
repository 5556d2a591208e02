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
from ade.core.agent_runs.names import task_name
from ade.core.agent_runs.results import AgentProgress, AgentResult, progress_in, result_in
from ade.core.errors import AdeError, NotConfirmed, QueueFull, StoreCorrupt, StoreError, StoreUnavailable, UnknownTask
from ade.core.inbox.items import DequeuedBatch, Part
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
IDS = ("session_id", "agent_id", "conversation_id")  # what the agent needs to go on where it was
_AGAIN_S = 0.5  # after the store could not be reached


class AgentTurns:
    """Feeds agents of one type. Belongs to one event loop.

    `enqueue` is the app's way, with its guard. `template` is what its tasks have in common, such as a time-out; `usual`
    are arguments that every turn gets, such as a model.
    """

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

    async def __call__(self, batch: DequeuedBatch, inbox: Inbox) -> dict[str, Any]:
        memory, turn = inbox.memory, begun_in(inbox.memory)
        if turn is not None and not turn.covers(batch):  # its items were removed, but perhaps it goes on
            memory = await self._after_earlier(memory, turn)
            turn = None
        if turn is None:
            turn = BegunTurn(
                first=batch.items[0].seq, last=batch.items[-1].seq, task=fresh_id(self._stores.clock.now())
            )
            memory = without_turn(memory)
            await self._remember(inbox, with_turn(memory, turn))
        ended = await self._ended(await self._begun(turn, batch, inbox, memory))
        return await self._learned(ended, inbox, without_turn(memory))

    async def _after_earlier(self, memory: dict[str, Any], turn: BegunTurn) -> dict[str, Any]:
        """Two turns of a conversation at once would not know of each other."""
        [task] = await self._stores.tasks.get([turn.task])
        return memory if task is None else _with_ids(memory, await self._said_by(await self._ended(task)))

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
            raise GiveUp(ClearReason.ERROR, f"{error.code}: {error.detail}") from error
        return stored

    def _task(self, turn: BegunTurn, batch: DequeuedBatch, inbox: Inbox, memory: dict[str, Any]) -> Task:
        # All turns share a folder: agents find their sessions by it.
        args = {"workspace": inbox.id, **self._usual, "prompt": prompt_of(batch), **ids_of(batch, memory)}
        return structs.replace(
            self._template,
            id=turn.task,
            args=Raw(msgspec.json.encode(args)),
            idempotency_key=f"turn:{inbox.id}:{turn.first}-{turn.last}",
            parent_id=memory.get("parent_id"),
            author_id=memory.get("author_id") or self._author_id,
            source="agent",
        )

    async def _ended(self, task: Task) -> Task:
        """Waits as long as it takes; who holds the batch no longer is cancelled."""
        while True:
            try:
                return await self._watch.wait(task.id)
            except UnknownTask as error:
                raise GiveUp(ClearReason.ERROR, error.detail) from error
            except StoreUnavailable:
                await asyncio.sleep(_AGAIN_S)

    async def _learned(self, task: Task, inbox: Inbox, memory: dict[str, Any]) -> dict[str, Any]:
        """What to remember. A task that did not complete can be replayed; its items are not told again."""
        memory = _with_ids(memory, await self._said_by(task))
        if task.status is Status.COMPLETED:
            return memory
        await self._remember(inbox, memory)
        was_stopped = task.status in (Status.CANCELLED, Status.REJECTED)
        reason = ClearReason.CANCELLED if was_stopped else ClearReason.ERROR
        raise GiveUp(reason, f"task {task.id} is {task.status}")

    async def _said_by(self, task: Task) -> AgentResult | AgentProgress | None:
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


def ids_of(batch: DequeuedBatch, memory: Mapping[str, Any]) -> dict[str, str]:
    """Where the agent goes on: what the items name counts more than what was remembered.

    A session belongs to its conversation, so items of another one begin anew.
    """
    agent_id, conversation_id = batch.items[0].scope
    known = {name: memory[name] for name in IDS if isinstance(memory.get(name), str)}
    if conversation_id is not None and known.get("conversation_id", conversation_id) != conversation_id:
        known = {}
    named = {"agent_id": agent_id, "conversation_id": conversation_id}
    return known | {name: value for name, value in named.items() if value is not None}


def _with_ids(memory: dict[str, Any], said: AgentResult | AgentProgress | None) -> dict[str, Any]:
    ids = {name: getattr(said, name) for name in IDS if said is not None}
    return memory | {name: value for name, value in ids.items() if value is not None}
