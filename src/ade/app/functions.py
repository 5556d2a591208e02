"""Task functions: what `@ade.task` returns, how it becomes a handler, and the context of a direct call."""

import dataclasses
import functools
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack

from msgspec import structs

from ade.app.handle import TaskHandle
from ade.common.calls import BlockingCall, Call
from ade.errors import InvalidTask
from ade.locks.requests import LeaveLock, TakeLock, TakenLock
from ade.logs import Log
from ade.tasks.admission import check_name
from ade.tasks.arguments import Parameters, Signature
from ade.tasks.enqueue import Invocation, TaskPlan, make_plan, make_tasks
from ade.tasks.handlers import Handler, HandlerMode, Registry
from ade.tasks.lifecycle import Status
from ade.tasks.model import Effect, Task
from ade.tasks.option_values import read_text
from ade.tasks.options import DeclaredOptions, TaskOptions, check_known, definition_of
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
        request = wanted.request(id=os.urandom(16).hex(), owner=self._owner)
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


def make_handler(function: Callable[..., Any], declared: DeclaredOptions) -> Handler:
    """Build the handler of a function and its declared options. Raises InvalidTask if either is invalid."""
    given: dict[str, Any] = {**declared}
    check_known(given, DeclaredOptions)
    if "concurrency_key" in given:
        given.setdefault("concurrency_per_key", 1)
    signature = Signature.of(function)
    name = read_text("name", given.get("name", signature.parameters.function_name))
    check_name(name)
    key_of = given.get("concurrency_key")
    return Handler(
        name=name,
        function=function,
        signature=signature,
        mode=_mode(function, name, cpu=given.get("cpu", False)),
        definition=definition_of(name, given, signature.schema()),
        concurrency_key=None if key_of is None else _key_maker(name, key_of, signature.parameters),
    )


def _mode(function: Callable[..., Any], name: str, *, cpu: bool) -> HandlerMode:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidTask(f"task {name!r} is a generator; return a list, or enqueue a task for each item")
    if not inspect.iscoroutinefunction(function):
        return HandlerMode.PROCESS if cpu else HandlerMode.THREAD
    if cpu:
        raise InvalidTask(f"task {name!r} is async, so cpu=True cannot be used; make it a plain function")
    return HandlerMode.ASYNC


def _key_maker(name: str, key_of: Callable[..., str], parameters: Parameters) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that calls the user's key function with the arguments it names, including defaults."""
    wanted = tuple(inspect.signature(key_of).parameters)
    if unknown := [parameter for parameter in wanted if parameter not in parameters.types]:
        raise InvalidTask(f"concurrency_key of task {name!r} asks for {', '.join(unknown)}, which is no argument of it")

    def key(arguments: Mapping[str, Any]) -> str:
        known = {**parameters.defaults, **arguments}
        made = key_of(*(known[parameter] for parameter in wanted))
        if not isinstance(made, str):
            raise InvalidTask(f"concurrency_key of task {name!r} must return text, not {made!r}")
        return made

    return key


# A task can have two more parts: a preview of a call, and its rollback.


PREVIEW, ROLLBACK = "preview", "rollback"
_MARKS = {PREVIEW: "has_preview", ROLLBACK: "has_rollback"}


def with_part(registry: Registry, handler: Handler, part: str, function: Callable[..., Any]) -> Handler:
    """Register a function as a part of a task and return the updated handler. Raises InvalidTask."""
    if part not in _MARKS:
        raise InvalidTask(f"a task has a {' and a '.join(_MARKS)}, and no {part}")
    definition = handler.definition
    declared: DeclaredOptions = {
        "name": f"{handler.name}:{part}",
        "queue": definition.queue,
        "priority": definition.priority,
    }
    own = make_handler(function, declared)
    _check_fits(handler, own, part)
    registry.add(own)
    marked = dataclasses.replace(handler, definition=structs.replace(definition, **{_MARKS[part]: True}))
    registry.by_name[handler.name] = marked
    return marked


def _check_fits(handler: Handler, own: Handler, part: str) -> None:
    """Check that a part takes exactly the arguments of the task, because it is called with them."""
    theirs, ours = handler.signature.parameters, own.signature.parameters
    unknown = [name for name in ours.types if name not in theirs.types]
    missing = [name for name in theirs.types if name not in ours.types]
    if unknown or missing:
        listed = ", ".join(theirs.types) or "nothing"
        raise InvalidTask(f"the {part} of task {handler.name!r} must take the same arguments as the task: {listed}")


P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


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
        opened = self._app.opened or await self._app.open()
        [stored] = await opened.store([structs.replace(self._made(opened, args, kwargs), status=Status.DRAFT)])
        return TaskHandle(self._app, stored.id, self.handler.signature)

    def _make_plan(self) -> TaskPlan:
        return make_plan(self._app.template_of(self.handler.definition), self._options)

    async def _enqueue(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskHandle[R]:
        opened = self._app.opened or await self._app.open()
        [stored] = await opened.store([self._made(opened, args, kwargs)])
        return TaskHandle(self._app, stored.id, self.handler.signature)

    def _enqueue_blocking(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskHandle[R]:
        opened, portal = self._app.opened, self._app.portal
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
