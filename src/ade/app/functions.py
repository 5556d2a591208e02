"""Task functions: what `@ade.task` returns, the handle of an enqueued call, and the context of a direct call."""

import functools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypeVar, Unpack

import msgspec
from msgspec import structs

from ade.app.lock import account_here
from ade.approvals.model import Decision
from ade.approvals.rollback import roll_back
from ade.approvals.service import start, vote
from ade.approvals.submission import submit
from ade.approvals.votes import VoteRequest
from ade.common.calls import BlockingCall, Call, Stream
from ade.errors import InvalidTask, ResultExpired, TaskCancelled, TaskFailed
from ade.events.model import Event
from ade.locks.model import PriorityName
from ade.locks.requests import LeaveLock, TakeLock, TakenLock
from ade.logs import Log
from ade.stores.ports import DONE
from ade.tasks import service as tasks_service
from ade.tasks.arguments import Signature
from ade.tasks.enqueue import Invocation, TaskPlan, make_plan, make_tasks
from ade.tasks.handlers import PREVIEW, ROLLBACK, Handler, with_part
from ade.tasks.lifecycle import Status
from ade.tasks.model import Effect, OutputLine, Task
from ade.tasks.options import TaskOptions
from ade.worker.context import Context, SyncContext
from ade.worker.messages import (
    BeginEffect,
    EffectState,
    EnqueueChildren,
    Request,
    RequestStepApproval,
    RunInfo,
    WriteOutput,
)

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.composition.app_store import OpenStore
    from ade.locks.holder import HeldLock
    from ade.tasks.reasons import Explanation

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", Event, OutputLine)
_PAGE = 200
_FOLLOW_S = 0.25  # poll interval for changes that send no wake-up

# The context of a task function that is called directly: nothing is recorded, but locks are acquired.


_INLINE = "inline"


class DirectLocks:
    """Locks of a direct call, acquired on the event loop of the caller or, if `blocking`, from a thread without one."""

    def __init__(self, app: "Ade", owner: str, *, blocking: bool) -> None:
        self._app = app
        self._owner = owner
        self._blocking = blocking
        self.scope = os.urandom(16).hex()
        self.held: dict[str, HeldLock] = {}

    async def take(self, wanted: TakeLock) -> TakenLock:
        """Acquire locks and remember them."""
        held = self._app.portal.run(self._take(wanted)) if self._blocking else await self._take(wanted)
        self.held[held.id] = held
        return TakenLock(held.id, held.grant.namespace, held.grant.items)

    async def leave(self, lock_id: str) -> None:
        """Release a lock."""
        held = self.held.pop(lock_id)
        if self._blocking:
            self._app.portal.run(self._release(held))
        else:
            await self._release(held)

    async def _take(self, wanted: TakeLock) -> "HeldLock":
        request = wanted.request(id=os.urandom(16).hex(), owner=self._owner, account=account_here(self._app))
        return await (await self._app.open()).side.locks.acquire(request, wait_ms=wanted.wait_ms)

    async def _release(self, held: "HeldLock") -> None:
        await (await self._app.open()).side.locks.release(held)


def inline_context(
    name: str, enqueue: Callable[[Sequence[Task]], Awaitable[list[Task]]], locks: DirectLocks
) -> Context:
    """Return the context of a direct call: effects run, output is logged, and children have no parent."""

    async def answer(request: Request) -> Any:
        match request:
            case WriteOutput(text):
                _log(name, text)
            case BeginEffect(key):
                return EffectState(Effect(key=key, run_id=_INLINE), live=False)
            case EnqueueChildren(tasks):
                return await enqueue(tasks)
            case TakeLock():
                return await locks.take(request)
            case LeaveLock(lock_id):
                await locks.leave(lock_id)
            case RequestStepApproval():
                raise InvalidTask("a function that is called directly cannot wait for approval; enqueue it instead")
        return None

    facts = RunInfo(task_id="", name=name, attempt=1, worker=_INLINE, run_id=_INLINE, scope=locks.scope)
    return Context(facts, answer, lambda: False, lambda: locks.held)


def _log(name: str, line: str) -> None:
    Log("ade.inline").info("task.says", name=name, line=line)


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

    def reschedule(
        self,
        *,
        priority: int | PriorityName | None = None,
        delay: float | timedelta | None = None,
        run_at: datetime | None = None,
    ) -> Call[Task]:
        """Change the priority of a pending task, or its start: after `delay` seconds, with 0 now, or at `run_at`.

        Approvals stay valid. Raises IllegalTransition unless it is pending, and InvalidTask.
        """
        return Call(self._reschedule(priority, delay, run_at), self._app.portal)

    def submit(self, *, by: str | None = None) -> Call[Task]:
        """Put a draft before people: it is previewed, scored and frozen. `by` is the account that does so, by default
        the author of the app. Raises AuthorRequired."""
        return Call(self._submit(by), self._app.portal)

    def vote(
        self,
        decision: Literal["approve", "reject", "request_changes", "respond"],
        *,
        by: str,
        approval: str,
        digest: str,
        reason: str = "",
        text: str = "",
        args: dict[str, Any] | None = None,
        go_on: bool = False,
    ) -> Call[Task]:
        """Vote as an account, on the approval and the whole digest that it reviewed: `id` and `digest` of
        `(await handle.get()).review.gate`.

        `text` and `args` are for a response to a step of a run, `go_on` for its rejection: the run continues.

        Raises DigestMismatch, GateClosed, NotEligible and its kinds, with nothing changed.
        """
        request = VoteRequest(
            voter=by,
            decision=Decision(decision),
            approval=approval,
            digest=digest,
            reason=reason,
            via="app",
            text=text,
            args=args,
            go_on=go_on,
        )
        return Call(self._vote(request), self._app.portal)

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
            raise ResultExpired(f"the result of task {task.id} ({task.name}) expired after its result_ttl")
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

    async def _reschedule(self, priority: object, delay: object, run_at: object) -> Task:
        opened = await self._app.open()
        return await tasks_service.reschedule(
            opened.stores, self.id, priority=priority, delay=delay, run_at=run_at, actor=opened.author
        )

    async def _submit(self, by: str | None) -> Task:
        opened = await self._app.open()
        return await submit(opened.stores, opened.payloads, self.id, actor=by or opened.author)

    async def _vote(self, request: VoteRequest) -> Task:
        return await vote((await self._app.open()).stores, self.id, request)

    async def _start(self, by: str) -> Task:
        return await start((await self._app.open()).stores, self.id, actor=by)

    async def _roll_back(self, by: str | None) -> "TaskHandle[Any]":
        opened = await self._app.open()
        return TaskHandle(self._app, (await roll_back(opened.stores, opened.payloads, self.id, actor=by)).id)

    async def _explain(self) -> "Explanation":
        from ade.tasks.explain import explain  # 14 ms that most programs do not need

        return await explain((await self._app.open()).stores, self.id)

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


class TaskFunction(Generic[P, R]):
    """A task: `await f.enqueue(...)` stores a call of it, `f(...)` runs it here and now."""

    def __init__(self, app: "Ade", handler: Handler) -> None:
        wrapper: Any = self
        functools.update_wrapper(wrapper, handler.function)
        self.handler = handler
        self._app = app
        self._options: TaskOptions = {}
        self._key_of = handler.concurrency_key

    @property
    def name(self) -> str:
        return self.handler.name

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself, as it was written."""
        return self.handler.function

    def __repr__(self) -> str:
        return f"<task {self.handler.name}: {self.handler.signature.parameters.text}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Call[TaskHandle[R]]:
        """Store a call; it is durable when the answer is there. Raises InvalidArguments with nothing stored."""
        return BlockingCall(
            self._enqueue(args, kwargs), self._app.portal, partial(self._enqueue_blocking, args, kwargs)
        )

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Invocation[R]:
        """Write a call down for `ade.enqueue_many`; nothing is stored yet."""
        return self._invocation(args, kwargs)

    def with_options(self, **options: Unpack[TaskOptions]) -> Self:
        """The same task, with these options for what is enqueued through it."""
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed._options = {**self._options, **options}
        changed._key_of = None if "concurrency_key" in changed._options else self._key_of
        changed.plan = changed._make_plan()  # now, to report an invalid option where it is set
        return changed

    def draft(self, *args: P.args, **kwargs: P.kwargs) -> Call[TaskHandle[R]]:
        """Store a call that does not run before it is submitted and approved; until then it may be edited."""
        return Call(self._draft(args, kwargs), self._app.portal)

    def preview(self, function: F, /) -> F:
        """Let a function tell what a call would do, without doing it: it returns an `ade.Preview`.

        From then on people approve every call, after they have seen that. It takes the arguments of the task.
        """
        self._add_part(PREVIEW, function)
        return function

    def rollback(self, function: F, /) -> F:
        """Let a function undo a call; it takes the arguments of the task."""
        self._add_part(ROLLBACK, function)
        return function

    def handle(self, task_id: str) -> TaskHandle[R]:
        """A handle on a task of this function that was enqueued earlier."""
        return TaskHandle(self._app, task_id, self.handler.signature)

    @cached_property
    def plan(self) -> TaskPlan:
        """The common part of everything that is enqueued with these options."""
        return self._make_plan()

    def make_task(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """Return the record of a call, for contexts that enqueue children. Other code uses `enqueue`."""
        [task] = make_tasks([self._invocation(args, kwargs)], now=time.time_ns() // 1_000_000)
        return task

    def handle_of(self, task: Task) -> TaskHandle[R]:
        """Return the handle of a stored task."""
        return TaskHandle(self._app, task.id, self.handler.signature)

    def _add_part(self, part: str, function: Callable[..., Any]) -> None:
        self.handler = with_part(self._app.registry, self.handler, part, function)
        self.__dict__.pop("plan", None)  # the cached plan does not include the new part

    async def _draft(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskHandle[R]:
        opened = self._app.opener.opened or await self._app.open()
        [stored] = await opened.store([structs.replace(self._made(opened, args, kwargs), status=Status.DRAFT)])
        return TaskHandle(self._app, stored.id, self.handler.signature)

    def _make_plan(self) -> TaskPlan:
        return make_plan(self._app.template_of(self.handler.definition), self._options)

    async def _enqueue(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskHandle[R]:
        opened = self._app.opener.opened or await self._app.open()
        [stored] = await opened.store([self._made(opened, args, kwargs)])
        return TaskHandle(self._app, stored.id, self.handler.signature)

    def _enqueue_blocking(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskHandle[R]:
        opened, portal = self._app.opener.opened, self._app.portal
        opened = opened or portal.run(self._app.open())
        [stored] = opened.store_blocking([self._made(opened, args, kwargs)], portal)
        return TaskHandle(self._app, stored.id, self.handler.signature)

    def _made(self, opened: "OpenStore", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Task:
        plan, now = self.plan, opened.stores.clock.now()
        if plan.after or self._key_of is not None:
            return make_tasks([self._invocation(args, kwargs)], now=now)[0]
        return plan.make(self.handler.signature.bind(args, kwargs), now=now)

    def _invocation(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Invocation[R]:
        signature = self.handler.signature
        arguments = signature.named(args, kwargs)
        raw = signature.encode(arguments)  # first, so that the key function receives only valid arguments
        key = None if self._key_of is None else self._key_of(arguments)
        return Invocation(self.plan, raw, key=key, signature=signature)

    def _placed(self, args: tuple[Any, ...], kwargs: dict[str, Any], context: object) -> tuple[Any, Any]:
        """Return the arguments of a direct call, including the context."""
        signature = self.handler.signature
        return signature.place(signature.named(args, kwargs), context)

    def _inline(self, *, blocking: bool) -> Context:
        app = self._app
        locks = DirectLocks(app, self.name, blocking=blocking)
        return inline_context(self.name, app.store_tasks_blocking if blocking else app.store_tasks, locks)

    def _wants_context(self, kwargs: dict[str, Any]) -> bool:
        name = self.handler.signature.parameters.context
        return name is not None and name not in kwargs


class AsyncTask(TaskFunction[P, R]):
    """A task that is a coroutine function."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the task immediately, without the queue."""
        placed: tuple[Any, Any] = args, kwargs
        if self._wants_context(kwargs):
            placed = self._placed(args, kwargs, self._inline(blocking=False))
        result: R = await self.function(*placed[0], **placed[1])
        return result


class PlainTask(TaskFunction[P, R]):
    """A task that is a plain function; workers run it in a thread or a process."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the task immediately, without the queue."""
        placed: tuple[Any, Any] = args, kwargs
        if self._wants_context(kwargs):
            placed = self._placed(args, kwargs, SyncContext(self._inline(blocking=True)))
        result: R = self.function(*placed[0], **placed[1])
        return result
