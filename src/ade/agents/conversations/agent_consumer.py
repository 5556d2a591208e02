"""The consumer that feeds an agent: every batch is one turn, and every turn is a task of the agent's type.

Which items a turn has and which task it is, is remembered before the task is enqueued. So whoever takes over after a
crash takes the same items and finds the same task, and no item is told to the agent twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Raw, structs

from ade.agents.conversations.batch_lease import InFlightTurn, in_flight_turn_in, with_turn, without_turn
from ade.agents.conversations.durable_inbox import DurableInbox
from ade.agents.conversations.inbox import ClearReason, Inbox
from ade.agents.conversations.model import COALESCABLE, KINDS, ItemBatch, ItemKind, Part
from ade.agents.conversations.rules import merged_content
from ade.agents.runs.model import AgentProgress, AgentResult, progress_in, result_in
from ade.errors import AdeError, NotConfirmed, QueueFull, StoreCorrupt, StoreError, StoreUnavailable
from ade.failures import FailureKind, TaskError
from ade.stores.ports import Stores
from ade.tasks.enqueue import fresh_id
from ade.tasks.identifiers import task_name
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.payloads import Payloads
from ade.tasks.service import CompletionWatcher

# What a conversation remembers of its agent between turns, so that the next one goes on where the last one ended.


IDS = ("session_id", "agent_id", "conversation_id")
TOKENS = "session_tokens"  # what the session has taken so far, for programs that count whole sessions
Said = AgentResult | AgentProgress | None

# Failures that say nothing about the session: the program was not started, or somebody else did not let it go on.
_ELSEWHERE = frozenset(
    {
        FailureKind.WORKER_DIED,
        FailureKind.BAD_ARGUMENTS,
        FailureKind.UNKNOWN_NAME,
        FailureKind.RATE_LIMITED,
        FailureKind.DEPENDENCY_FAILED,
        FailureKind.DEADLINE_PASSED,
        FailureKind.DENIED,
    }
)
_ELSEWHERE_TYPES = frozenset(
    {"ProgramNotStarted", "AgentBudgetExceeded", "AgentQuotaExhausted", "AgentNotAuthenticated"}
)


def ids_of(batch: ItemBatch, memory: Mapping[str, Any]) -> dict[str, Any]:
    """Where the agent goes on: what the items name counts more than what was remembered.

    A session belongs to its agent and conversation, so items for another one begin anew.
    """
    agent_id, conversation_id = batch.items[0].scope
    named = {"agent_id": agent_id, "conversation_id": conversation_id}
    named = {name: value for name, value in named.items() if value is not None}
    known: dict[str, Any] = {name: memory[name] for name in IDS if isinstance(memory.get(name), str)}
    if any(known.get(name, value) != value for name, value in named.items()):
        known = {}
    if "session_id" in known and isinstance(memory.get(TOKENS), int):
        known[TOKENS] = memory[TOKENS]
    return known | named


def after_turn(memory: Mapping[str, Any], given: Mapping[str, Any], task: Task, said: Said) -> dict[str, Any]:
    """What to remember. `given` is what the turn began with, `said` what it told of itself.

    After a failure a session is forgotten that the run has not found, or every later turn would fail as this one did.
    """
    told = {name: value for name in IDS if (value := getattr(said, name, None)) is not None}
    if task.status is Status.FAILED and not _is_elsewhere(task.error):
        ids = told
    elif task.status is Status.COMPLETED or told:
        ids = {name: given[name] for name in IDS if name in given} | told
    else:
        return dict(memory)
    tokens = given.get(TOKENS) if said is None else said.session_tokens
    if "session_id" in ids and tokens is not None:
        ids = {**ids, TOKENS: tokens}
    return {name: value for name, value in memory.items() if name not in (*IDS, TOKENS)} | ids


def _is_elsewhere(error: TaskError | None) -> bool:
    return error is not None and (error.kind in _ELSEWHERE or error.type in _ELSEWHERE_TYPES)


# What feeds on an inbox: a function that is given batch after batch.


# Called with a batch and its inbox as it was taken: `memory` is what was kept last, `lease` the right to write. It
# returns when all that the batch led to is stored, with what is to be found in `memory` next time; None leaves that as
# it is. After a crash it may be given the same items again.
Consume = Callable[[ItemBatch, Inbox], Awaitable[dict[str, Any] | None]]


@runtime_checkable
class WaitingConsumer(Protocol):
    """A consumer whose work is done elsewhere."""

    async def only_waiting(self) -> Collection[str]:
        """The inboxes whose turn waits for a worker or for people: they take no place. Raises StoreError."""


def waking_of(consume: Consume) -> Collection[ItemKind]:
    """The kinds that make a turn for this consumer, as it says in `waking`: all, if it says nothing."""
    return getattr(consume, "waking", KINDS)


class DiscardBatch(Exception):
    """Raised by a consumer: this batch shall not be tried again. Its items are cleared for this reason.

    `memory` is what is to be found next time, written in the same step; None leaves that as it is.
    """

    def __init__(self, reason: ClearReason, why: str = "", memory: dict[str, Any] | None = None) -> None:
        super().__init__(why or reason)
        self.reason = reason
        self.why = why
        self.memory = memory


Enqueue = Callable[[Sequence[Task]], Awaitable[list[Task]]]
_PAGE = 500
_LONGEST_DESCRIPTION = 60
_AGAIN_S = 0.5  # after the store could not be reached


class AgentConsumer:
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
        self._watch = CompletionWatcher(stores)
        self._under_way: dict[str, str] = {}  # the tasks that are waited for, by their inboxes

    async def __call__(self, batch: ItemBatch, inbox: Inbox) -> dict[str, Any]:
        memory, turn = without_turn(inbox.memory), in_flight_turn_in(inbox.memory)
        if turn is not None and not turn.covers(batch):  # its items were removed, but perhaps it goes on
            memory = await self._after_earlier(memory, turn, inbox)
            turn = None
        if turn is None:
            turn = InFlightTurn(
                first=batch.items[0].seq, last=batch.items[-1].seq, task=fresh_id(self._stores.clock.now())
            )
            await self._remember(inbox, with_turn(memory, turn))
        ended = await self._ended(await self._begun(turn, batch, inbox, memory), inbox)
        if not turn.is_reset:
            memory = after_turn(memory, ids_of(batch, memory), ended, await self._said_by(ended))
        if ended.status is not Status.COMPLETED:  # it can be replayed; its items are not told again
            raise DiscardBatch(_reason(ended), f"task {ended.id} is {ended.status}", memory)
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

    async def _after_earlier(self, memory: dict[str, Any], turn: InFlightTurn, inbox: Inbox) -> dict[str, Any]:
        """Two turns of a conversation at once would not know of each other."""
        [task] = await self._stores.tasks.get([turn.task])
        if task is None:
            return memory
        ended = await self._ended(task, inbox)
        return memory if turn.is_reset else after_turn(memory, memory, ended, await self._said_by(ended))

    async def _begun(self, turn: InFlightTurn, batch: ItemBatch, inbox: Inbox, memory: dict[str, Any]) -> Task:
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
            raise DiscardBatch(ClearReason.ERROR, f"{error.code}: {error.detail}", memory) from error
        return stored

    def _task(self, turn: InFlightTurn, batch: ItemBatch, inbox: Inbox, memory: dict[str, Any]) -> Task:
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


def prompt_of(batch: ItemBatch) -> str:
    """All items as one text, in order; a part that is no text is given as JSON."""
    return "".join(_as_text(part) for part in merged_content(batch.items) or [])


def _as_text(part: Part) -> str:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    return msgspec.json.encode(part).decode()


def _reason(ended: Task) -> ClearReason:
    return ClearReason.CANCELLED if ended.status in (Status.CANCELLED, Status.REJECTED) else ClearReason.ERROR
