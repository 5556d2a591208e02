"""The handle of an enqueued task: result, status, events, output, and actions such as cancel and explain."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from ade.approvals.model import Decision
from ade.common.calls import Call, Stream
from ade.errors import ResultExpired, TaskCancelled, TaskFailed
from ade.events.model import Event
from ade.stores.ports import DONE
from ade.tasks import service as tasks_service
from ade.tasks.arguments import Signature
from ade.tasks.lifecycle import Status
from ade.tasks.model import OutputLine, Task

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.app.task_actions import TaskActions
    from ade.tasks.reasons import Explanation

R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S", Event, OutputLine)
_PAGE = 200
_FOLLOW_S = 0.25  # poll interval for changes that send no wake-up


class TaskHandle(Generic[R_co]):
    """Cheap to make and keep: an id and where to ask about it."""

    __slots__ = ("_app", "_signature", "id")

    def __init__(self, app: "Ade", task_id: str, signature: Signature | None = None) -> None:
        self.id = task_id
        self._app = app
        self._signature = signature

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def result(self, timeout: float | None = None) -> Call[R_co]:
        """What the task returned, once it has.

        Raises TaskFailed, TaskCancelled, ResultExpired, and WaitTimeout after `timeout` seconds.
        """
        return Call(self._result(timeout), self._app.portal)

    def wait(self, timeout: float | None = None) -> Call[Task]:
        """The record once the task is final, however it ended. Raises WaitTimeout."""
        return Call(self._wait(timeout), self._app.portal)

    def get(self) -> Call[Task]:
        """The record as it is now. Raises UnknownTask once it was pruned."""
        return Call(self._get(), self._app.portal)

    def status(self) -> Call[Status]:
        return Call(self._status(), self._app.portal)

    def cancel(self, reason: str | None = None) -> Call[Task]:
        """Stop it, whatever it is doing; its unfinished children too. A late result is refused."""
        return Call(self._cancel(reason), self._app.portal)

    def submit(self, *, by: str | None = None) -> Call[Task]:
        """Put a draft before people: it is previewed, scored and frozen. `by` is the account that does so."""
        return Call(self._submit(by), self._app.portal)

    def vote(
        self, decision: Literal["approve", "reject", "request_changes"], *, by: str, digest: str, reason: str = ""
    ) -> Call[Task]:
        """Answer in the name of an account, about what has this digest: `(await handle.get()).digest`.

        Raises DigestMismatch, GateClosed, NotEligible and its kinds, with nothing changed.
        """
        return Call(self._vote(Decision(decision), by, digest, reason), self._app.portal)

    def start(self, *, by: str) -> Call[Task]:
        """Let an approved task that waits for a hand join its queue."""
        return Call(self._start(by), self._app.portal)

    def roll_back(self, *, by: str | None = None) -> "Call[TaskHandle[Any]]":
        """Enqueue the rollback of a task that has ended; once, however often it is asked for."""
        return Call(self._roll_back(by), self._app.portal)

    def explain(self) -> "Call[Explanation]":
        """Why it is not running, or what became of it."""
        return Call(self._explain(), self._app.portal)

    def events(self, *, follow: bool = False) -> Stream[Event]:
        """What has happened to it, oldest first; with `follow` also what will, until it is final."""
        return Stream(lambda: self._events(follow), self._app.portal)

    def output(self, *, follow: bool = False) -> Stream[OutputLine]:
        """The lines its runs have written; with `follow` also those to come, until it is final."""
        return Stream(lambda: self._output(follow), self._app.portal)

    async def _result(self, timeout: float | None) -> Any:
        task = await self._wait(timeout)
        match task.status:
            case Status.COMPLETED:
                return await self._decoded(task)
            case Status.FAILED:
                what = "an unknown error" if task.error is None else f"{task.error.type}: {task.error.message}"
                raise TaskFailed(f"task {task.id} ({task.name}) failed: {what}", task_id=task.id, error=task.error)
            case _:
                because = f": {task.reason}" if task.reason else ""
                raise TaskCancelled(
                    f"task {task.id} ({task.name}) was {task.status}{because}", task_id=task.id, reason=task.reason
                )

    async def _decoded(self, task: Task) -> Any:
        opened = await self._app.open()
        raw = await tasks_service.result_of(opened.stores, opened.payloads, task)
        if raw is None:
            raise ResultExpired(f"the result of task {task.id} ({task.name}) was kept for its result_ttl and is gone")
        signature = self._signature or self._app.signature_of(task.name)
        return msgspec.json.decode(raw) if signature is None else signature.decode_result(raw)

    async def _wait(self, timeout: float | None) -> Task:
        return await (await self._app.open()).side.watch.wait(self.id, timeout)

    async def _get(self) -> Task:
        return await tasks_service.get((await self._app.open()).stores, self.id)

    async def _status(self) -> Status:
        return (await self._get()).status

    async def _cancel(self, reason: str | None) -> Task:
        return await tasks_service.cancel((await self._app.open()).stores, self.id, reason)

    async def _submit(self, by: str | None) -> Task:
        return await self._actions.submit(by)

    async def _vote(self, decision: Decision, by: str, digest: str, reason: str) -> Task:
        return await self._actions.vote(decision, by, digest, reason)

    async def _start(self, by: str) -> Task:
        return await self._actions.start(by)

    async def _roll_back(self, by: str | None) -> "TaskHandle[Any]":
        return TaskHandle(self._app, (await self._actions.roll_back(by)).id)

    @property
    def _actions(self) -> "TaskActions":
        from ade.app.task_actions import TaskActions  # 20 ms and 1 MiB that most programs do not need

        return TaskActions(self._app, self.id)

    async def _explain(self) -> "Explanation":
        return await self._actions.explain()

    async def _events(self, follow: bool) -> AsyncIterator[Event]:
        stores = (await self._app.open()).stores
        async for event in self._followed(lambda last: stores.events.read(last, _PAGE, task_id=self.id), follow):
            yield event

    async def _output(self, follow: bool) -> AsyncIterator[OutputLine]:
        stores = (await self._app.open()).stores
        async for line in self._followed(lambda last: stores.outputs.read_output(self.id, last, _PAGE), follow):
            yield line

    async def _followed(self, read: Callable[[int], Awaitable[list[S]]], follow: bool) -> AsyncIterator[S]:
        """Yield items in the order of their seq, to the current end or, with `follow`, until the task is final."""
        wakeups = (await self._app.open()).stores.wakeups
        last, is_complete = 0, not follow
        while True:
            seen = wakeups.generation(DONE)
            is_complete = is_complete or (await self._get()).is_final  # before reading, to miss no item
            while page := await read(last):
                for item in page:
                    last = item.seq
                    yield item
            if is_complete:
                return
            await wakeups.wait(DONE, seen, _FOLLOW_S)
