"""The consumer that runs agents: every batch is one turn, and every turn is a task of the agent's type.

The items and the task ID of a turn are stored before the task is enqueued. After a crash, the next consumer takes the
same items and finds the same task, so the agent receives no item twice.
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
from ade.approvals.model import Review, with_editor
from ade.errors import AdeError, NotConfirmed, QueueFull, StoreCorrupt, StoreError, StoreUnavailable
from ade.failures import FailureKind, TaskError
from ade.stores.ports import Stores
from ade.tasks.enqueue import fresh_id
from ade.tasks.identifiers import task_name
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.payloads import Payloads
from ade.tasks.service import CompletionWatcher

# What a conversation remembers of its agent between turns, so that the next turn resumes the session.


IDS = ("session_id", "agent_id", "conversation_id")
TOKENS = "session_tokens"  # used by the session so far, for programs that report whole sessions
RunRecord = AgentResult | AgentProgress | None

# Failures unrelated to the session: the program did not start, or something external stopped it.
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
    """Return the IDs that the turn resumes from. IDs named by the items take precedence over remembered ones.

    A session belongs to its agent and conversation, so items for another one start from scratch.
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


def after_turn(memory: Mapping[str, Any], initial: Mapping[str, Any], task: Task, record: RunRecord) -> dict[str, Any]:
    """Return what to remember after a turn. `initial` is what it started with, `record` what it reported.

    After a failure, the session is kept only if the run reported it. Otherwise every later turn would fail in the same
    way.
    """
    reported = {name: value for name in IDS if (value := getattr(record, name, None)) is not None}
    if task.status is Status.FAILED and not _is_elsewhere(task.error):
        ids = reported
    elif task.status is Status.COMPLETED or reported:
        ids = {name: initial[name] for name in IDS if name in initial} | reported
    else:
        return dict(memory)
    tokens = initial.get(TOKENS) if record is None else record.session_tokens
    if "session_id" in ids and tokens is not None:
        ids = {**ids, TOKENS: tokens}
    return {name: value for name, value in memory.items() if name not in (*IDS, TOKENS)} | ids


def _is_elsewhere(error: TaskError | None) -> bool:
    return error is not None and (error.kind in _ELSEWHERE or error.type in _ELSEWHERE_TYPES)


# Consumers: functions that process one batch after another.


# Called with a batch and its inbox at the time of the claim: `memory` is the last remembered value, `lease` the right
# to write. It returns once all effects of the batch are stored. The return value becomes the next `memory`; None leaves
# it unchanged. After a crash, it can be called with the same items again.
Consume = Callable[[ItemBatch, Inbox], Awaitable[dict[str, Any] | None]]


@runtime_checkable
class WaitingConsumer(Protocol):
    """A consumer that waits for work done elsewhere."""

    async def only_waiting(self) -> Collection[str]:
        """Return inboxes whose turn waits for a worker or a reviewer; they occupy no slot. Raises StoreError."""


def waking_of(consume: Consume) -> Collection[ItemKind]:
    """Return the item kinds that trigger a turn for this consumer: its `waking` attribute, or all kinds."""
    return getattr(consume, "waking", KINDS)


class DiscardBatch(Exception):
    """Raised by a consumer: do not retry this batch. Its items are cleared for this reason.

    `memory` is remembered in the same write; None leaves it unchanged.
    """

    def __init__(self, reason: ClearReason, why: str = "", memory: dict[str, Any] | None = None) -> None:
        super().__init__(why or reason)
        self.reason = reason
        self.why = why
        self.memory = memory


Enqueue = Callable[[Sequence[Task]], Awaitable[list[Task]]]
_PAGE = 500
_LONGEST_DESCRIPTION = 60
_AGAIN_S = 0.5  # retry delay after the store was unreachable


class AgentConsumer:
    """Runs agents of one type. Bound to one event loop.

    `enqueue` is the app's enqueue function, with its guard. `template` holds what its tasks have in common, such as a
    timeout.

    Answers to questions do not go to the agent. They stay in the inbox until the asker takes them.
    """

    waking = COALESCABLE

    def __init__(self, stores: Stores, enqueue: Enqueue, profile_type: str, *, template: Task | None = None) -> None:
        self.name = task_name(profile_type)
        self._template = template or Task(id="", name=self.name)
        self._stores = stores
        self._enqueue = enqueue
        self._payloads = Payloads(stores.blobs)
        self._watch = CompletionWatcher(stores)
        self._under_way: dict[str, str] = {}  # inbox -> task that its turn waits for

    async def __call__(self, batch: ItemBatch, inbox: Inbox) -> dict[str, Any]:
        memory, turn = without_turn(inbox.memory), in_flight_turn_in(inbox.memory)
        if turn is not None and not turn.covers(batch):  # the items were removed, but the task might still be running
            memory = await self._after_earlier(memory, turn, inbox)
            turn = None
        if turn is None:
            turn = InFlightTurn(
                first=batch.items[0].seq, last=batch.items[-1].seq, task=fresh_id(self._stores.clock.now())
            )
            await self._remember(inbox, with_turn(memory, turn))
        ended = await self._ended(await self._begun(turn, batch, inbox, memory), inbox)
        if not turn.is_reset:
            memory = after_turn(memory, ids_of(batch, memory), ended, await self._record_of(ended))
        if ended.status is not Status.COMPLETED:  # the task can be replayed, so its items are not sent again
            raise DiscardBatch(_reason(ended), f"task {ended.id} is {ended.status}", memory)
        return memory

    async def only_waiting(self) -> list[str]:
        """Return inboxes whose task is not running: it waits for a worker, its start time, or a reviewer."""
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
        """Wait for the earlier turn. Concurrent turns of a conversation would not see each other's results."""
        [task] = await self._stores.tasks.get([turn.task])
        if task is None:
            return memory
        ended = await self._ended(task, inbox)
        return memory if turn.is_reset else after_turn(memory, memory, ended, await self._record_of(ended))

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
        except AdeError as error:  # permanent: a retry cannot succeed
            raise DiscardBatch(ClearReason.ERROR, f"{error.code}: {error.detail}", memory) from error
        return stored

    def _task(self, turn: InFlightTurn, batch: ItemBatch, inbox: Inbox, memory: dict[str, Any]) -> Task:
        # All turns share a directory, by which agents find their sessions.
        prompt = prompt_of(batch)
        args = {"workspace": inbox.id, "prompt": prompt, **ids_of(batch, memory)}
        author, *others = dict.fromkeys(item.author for item in batch.items if item.author) or (None,)
        review = self._template.review
        for each in others:  # an account that wrote part of the prompt cannot approve it
            review = with_editor(review or Review(), each)
        return structs.replace(
            self._template,
            id=turn.task,
            args=Raw(msgspec.json.encode(args)),
            description=prompt.strip().partition("\n")[0][:_LONGEST_DESCRIPTION] or f"conversation {inbox.id}",
            idempotency_key=f"turn:{inbox.id}:{turn.task}",  # seqs are reused after an inbox was deleted
            concurrency_key=f"conversation:{inbox.id}",  # serializes a replayed turn with the next one
            author_id=author,
            review=review,
            source="agent",
        )

    async def _ended(self, task: Task, inbox: Inbox) -> Task:
        """Wait for the task without a timeout; losing the batch lease cancels the wait. Raises UnknownTask.

        A task whose enqueue was never confirmed might be gone. Then the batch is returned, and the task is enqueued
        again.
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

    async def _record_of(self, task: Task) -> RunRecord:
        if task.result is None:
            return progress_in(task.progress)
        try:
            return result_in(await self._payloads.load(task.result))
        except StoreCorrupt:  # the blob is lost: the conversation continues with its previous memory
            return None

    async def _remember(self, inbox: Inbox, memory: dict[str, Any]) -> None:
        assert inbox.lease is not None
        await DurableInbox(self._stores, inbox.id).remember(inbox.lease.id, memory)


def prompt_of(batch: ItemBatch) -> str:
    """Join all items into one text, in order; a part that is not text is added as JSON."""
    return "".join(_as_text(part) for part in merged_content(batch.items) or [])


def _as_text(part: Part) -> str:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    return msgspec.json.encode(part).decode()


def _reason(ended: Task) -> ClearReason:
    return ClearReason.CANCELLED if ended.status in (Status.CANCELLED, Status.REJECTED) else ClearReason.ERROR
