"""What `@ade.task` makes of a function: still callable, and now something that can be enqueued."""

import functools
import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack

from msgspec import structs

from ade.app.governed import PREVIEW, ROLLBACK, with_part
from ade.app.handle import TaskHandle
from ade.app.inline import inline_context
from ade.app.inline_locks import DirectLocks
from ade.calls.call import Call, DirectCall
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.queue.handlers import Handler
from ade.queue.options import Options, make_plan
from ade.queue.plans import Invocation, Plan, make_tasks
from ade.worker.context import Context, SyncContext

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.app.opening import Opened

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
        self._options: Options = {}
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
        return DirectCall(self._enqueue(args, kwargs), self._app.portal, partial(self._enqueue_blocking, args, kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Invocation[R]:
        """Write a call down for `ade.enqueue_many`; nothing is stored yet."""
        return self._invocation(args, kwargs)

    def with_options(self, **options: Unpack[Options]) -> Self:
        """The same task, with these options for what is enqueued through it."""
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed._options = {**self._options, **options}
        changed._key_of = None if "concurrency_key" in changed._options else self._key_of
        changed.plan = changed._make_plan()  # now, so that a wrong option is reported where it was written
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
    def plan(self) -> Plan:
        """What everything enqueued with these options has in common."""
        return self._make_plan()

    def make_task(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """The record of a call, for contexts that enqueue children; everybody else uses `enqueue`."""
        [task] = make_tasks([self._invocation(args, kwargs)], now=time.time_ns() // 1_000_000)
        return task

    def handle_of(self, task: Task) -> TaskHandle[R]:
        return TaskHandle(self._app, task.id, self.handler.signature)

    def _add_part(self, part: str, function: Callable[..., Any]) -> None:
        self.handler = with_part(self._app.registry, self.handler, part, function)
        self.__dict__.pop("plan", None)  # what was planned knew nothing of it

    async def _draft(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskHandle[R]:
        opened = self._app.opened or await self._app.open()
        [stored] = await opened.store([structs.replace(self._made(opened, args, kwargs), status=Status.DRAFT)])
        return TaskHandle(self._app, stored.id, self.handler.signature)

    def _make_plan(self) -> Plan:
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

    def _made(self, opened: "Opened", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Task:
        plan, now = self.plan, opened.stores.clock.now()
        if plan.after or self._key_of is not None:
            return make_tasks([self._invocation(args, kwargs)], now=now)[0]
        return plan.make(self.handler.signature.bind(args, kwargs), now=now)

    def _invocation(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Invocation[R]:
        signature = self.handler.signature
        arguments = signature.named(args, kwargs)
        raw = signature.encode(arguments)  # first: no key is made from arguments that do not fit
        key = None if self._key_of is None else self._key_of(arguments)
        return Invocation(self.plan, raw, key=key, signature=signature)

    def _placed(self, args: tuple[Any, ...], kwargs: dict[str, Any], context: object) -> tuple[Any, Any]:
        """Arguments of a direct call with the context among them."""
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
        """Run it here and now, without the queue."""
        placed: tuple[Any, Any] = args, kwargs
        if self._wants_context(kwargs):
            placed = self._placed(args, kwargs, self._inline(blocking=False))
        result: R = await self.function(*placed[0], **placed[1])
        return result


class PlainTask(TaskFunction[P, R]):
    """A task that is a plain function; workers run it in a thread or a process."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here and now, without the queue."""
        placed: tuple[Any, Any] = args, kwargs
        if self._wants_context(kwargs):
            placed = self._placed(args, kwargs, SyncContext(self._inline(blocking=True)))
        result: R = self.function(*placed[0], **placed[1])
        return result
