"""The app: its store, its tasks, and the methods to enqueue tasks and run workers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from msgspec import structs

from ade.app.functions import AsyncTask, PlainTask, TaskFunction, TaskHandle
from ade.app.lock import Lock
from ade.common.calls import BlockingCall, Call, ClosingCall, Portal
from ade.common.text import without_password
from ade.composition.app_store import OpenStore, StoreOpener, default_author
from ade.composition.stores import open_stores
from ade.errors import InvalidSchedule, InvalidTask
from ade.logs import configure
from ade.settings import Settings, load
from ade.stores.ports import Clock
from ade.tasks.admission import admit
from ade.tasks.arguments import Signature
from ade.tasks.cron import next_fire_ms
from ade.tasks.definitions import arguments_by_name
from ade.tasks.enqueue import Invocation, make_plan, make_tasks, template_of
from ade.tasks.handlers import HandlerMode, Registry, make_handler, refuse_while_imported
from ade.tasks.identifiers import is_run
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Schedule, Task
from ade.tasks.options import DeclaredOptions, TaskOptions
from ade.worker.context import Context, SyncContext
from ade.worker.instrumentation import open_spans

if TYPE_CHECKING:  # programs that only enqueue do not load the worker modules
    from ade.app.agents import Agents
    from ade.locks.model import LockSpec, PriorityName
    from ade.worker.handler_call import Middleware
    from ade.worker.supervisor import Handover


# Typing of `@ade.task` and `@ade.cron`: the task keeps the parameters and the result of the function.
#
# The worker passes a context that is the first parameter, so it is not a parameter of the task. At any other position,
# give it a default to satisfy type checkers: `ctx: Context | None = None`.


P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator:
    """Turns a function into a task: `@ade.task`, or `@ade.task(timeout=60, max_attempts=5)`."""

    def __init__(
        self,
        app: "Ade",
        declared: DeclaredOptions | None = None,
        then: Callable[[TaskFunction[..., Any]], None] | None = None,
    ) -> None:
        self._app = app
        self._declared: DeclaredOptions = declared or {}
        self._then = then

    # A coroutine function is also a function. The first matching overload wins, so the overlaps are harmless.
    @overload
    def __call__(  # type: ignore[overload-overlap] # see above
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # see above
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], R], /) -> PlainTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def __call__(self, /, **declared: Unpack[DeclaredOptions]) -> "TaskDecorator": ...
    def __call__(self, function: Any = None, /, **declared: Unpack[DeclaredOptions]) -> Any:
        if function is None:
            return TaskDecorator(self._app, {**self._declared, **declared}, self._then)
        task = function if isinstance(function, TaskFunction) else self._task(function)
        if self._then is not None:
            self._then(task)
        return task

    def _task(self, function: Callable[..., Any]) -> TaskFunction[..., Any]:
        handler = make_handler(function, self._declared)
        self._app.registry.add(handler)
        return (AsyncTask if handler.mode is HandlerMode.ASYNC else PlainTask)(self._app, handler)


M = TypeVar("M", bound="Middleware")


class Ade:
    """One store and the tasks that go through it. Nothing is opened before the first use.

    Every method that talks to the store answers a Call: `await` it, or `.wait()` for it where no event loop runs.

    `author` is the account that writes the tasks, unless a task names another one: without it ADE_USER, or the setting
    task.author. Tasks that need approval must have one.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        author: str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.url = url
        self._named_author = author
        self._given_settings = settings
        self.opener = StoreOpener(partial(self._open_store, None, clock))
        self.portal = Portal()
        self.task = TaskDecorator(self)
        self.registry = Registry()
        self.schedules: list[Schedule] = []
        self.middlewares: list[Middleware] = []

    def __repr__(self) -> str:
        return f"Ade({without_password(self.settings.store.url)!r})"

    @cached_property
    def settings(self) -> Settings:
        """As given, or read from files and the environment when first needed."""
        if self._given_settings is None:
            return load(flags={"store.url": self.url}).settings
        if self.url is None:
            return self._given_settings
        return structs.replace(self._given_settings, store=structs.replace(self._given_settings.store, url=self.url))

    @property
    def author(self) -> str | None:
        """The account that writes tasks which name no author. Raises InvalidAccount."""
        return default_author(self.settings, self._named_author)

    @cached_property
    def agents(self) -> "Agents":
        """Run agents, reach their conversations, hand out the Task tool."""
        from ade.app.agents import Agents

        return Agents(self)

    def cron(
        self, line: str, *, tz: str = "UTC", name: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> TaskDecorator:
        """Enqueue a task whenever the cron line says; a function becomes a task first.

        The worker stores the schedule when it starts. Firings that were missed meanwhile are made up for by one.
        """
        next_fire_ms(line, tz, 0)  # report an invalid cron expression where it is declared

        def add(task: TaskFunction[..., Any]) -> None:
            handler = task.handler
            schedule = Schedule(
                name=name or handler.name,
                cron=line,
                timezone=tz,
                task_name=handler.name,
                queue=handler.definition.queue,
                priority=handler.definition.priority,
                args=handler.signature.encode(arguments or {}),
            )
            if any(known.name == schedule.name for known in self.schedules):
                raise InvalidSchedule(f"two schedules are named {schedule.name!r}; give one of them another name=...")
            self.schedules.append(schedule)

        return TaskDecorator(self, then=add)

    def middleware(self, layer: M) -> M:
        """Let `async def layer(task, proceed)` wrap every run; the first one is outermost."""
        self.middlewares.append(layer)
        return layer

    def enqueue(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        allow_unknown: bool = False,
        **options: Unpack[TaskOptions],
    ) -> Call[TaskHandle[Any]]:
        """Enqueue a task by name. Raises UnknownName unless it is defined here or some worker has defined it."""
        return Call(self._enqueue_by_name(name, dict(arguments or {}), allow_unknown, options), self.portal)

    def draft(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        allow_unknown: bool = False,
        **options: Unpack[TaskOptions],
    ) -> Call[TaskHandle[Any]]:
        """Store a task by name that does not run before it is submitted and approved."""
        return Call(self._draft(name, dict(arguments or {}), allow_unknown, options), self.portal)

    def enqueue_many(self, calls: Iterable[Invocation[R]]) -> Call[list[TaskHandle[R]]]:
        """Enqueue calls written down with `f.call(...)` in one step: all or none."""
        listed = list(calls)
        return BlockingCall(self._enqueue_many(listed), self.portal, partial(self._enqueue_many_blocking, listed))

    def lock(
        self,
        *resources: "str | LockSpec",
        owner: str | None = None,
        namespace: str = "default",
        priority: "int | PriorityName" = 5,
        ttl: float | None = None,
        wait: float | None = None,
        purpose: str | None = None,
    ) -> Lock:
        """Hold resources, all or none, for a block: `async with app.lock("repo:app")`, or a plain `with`.

        A bare name is locked for writing; `read(name)` shares it with other readers. Waits for ever unless `wait` is
        given, fairly and by priority. The lease of `ttl` seconds (None: the store's default, usually 30) is renewed
        while the block lasts; when that fails, the block is cancelled and LockLost raised.
        """
        return Lock(
            self,
            resources,
            owner=owner,
            namespace=namespace,
            priority=priority,
            ttl=ttl,
            wait=wait,
            purpose=purpose,
        )

    def handle(self, task_id: str) -> TaskHandle[Any]:
        """A handle on a task that was enqueued earlier."""
        return TaskHandle(self, task_id)

    def run_worker(self, *, concurrency: int | None = None, queues: Sequence[str] | None = None) -> "Handover":
        """Work in this process until SIGTERM or Ctrl-C, with the settings' options unless others are given.

        For the main part of a program. `work` does the same inside a running event loop.
        """
        refuse_while_imported()
        from ade.worker.supervisor import serve

        configure(self.settings.log.format, self.settings.log.level)
        return serve(lambda signals: self.work(signals.stop, signals.hurry, concurrency=concurrency, queues=queues))

    async def work(
        self,
        stop: asyncio.Event,
        hurry: asyncio.Event | None = None,
        *,
        concurrency: int | None = None,
        queues: Sequence[str] | None = None,
    ) -> "Handover":
        """Work until `stop` is set; `hurry` cuts the draining short. Answers what was handed back."""
        from ade.composition.worker import work

        worker = self.settings.worker
        given = {"concurrency": concurrency, "queues": None if queues is None else tuple(queues)}
        chosen = structs.replace(worker, **{name: value for name, value in given.items() if value is not None})
        return await work(self, structs.replace(self.settings, worker=chosen), stop, hurry)

    @asynccontextmanager
    async def worker(
        self, *, concurrency: int | None = None, queues: Sequence[str] | None = None
    ) -> AsyncIterator[None]:
        """A worker beside your own code for as long as the block lasts; at its end the worker drains.

        A worker that fails ends the block, which then raises what it failed of.
        """
        from ade.composition.worker import beside

        async with beside(lambda stop: self.work(stop, concurrency=concurrency, queues=queues)):
            yield

    def close(self) -> Call[None]:
        """Finish what is being written and close the store. An app that is used again opens it again."""
        return ClosingCall(self._close(), self.portal)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> OpenStore:
        """Open the store, or return the open store. All other methods call this automatically."""
        return self.opener.opened or await self.opener.open()

    def template_of(self, definition: Definition) -> Task:
        """Return a task with the defaults of a definition and the settings."""
        return template_of(definition, self.settings.task)

    def signature_of(self, name: str) -> Signature | None:
        """Return the signature of a task that this app defines; None for other tasks."""
        handler = self.registry.by_name.get(name)
        return None if handler is None else handler.signature

    async def store_tasks(self, tasks: Sequence[Task]) -> list[Task]:
        """Validate and store tasks."""
        opened = await self.open()
        now = opened.stores.clock.now()
        return await opened.keep([admit(task, now=now) for task in tasks])

    async def store_tasks_blocking(self, tasks: Sequence[Task]) -> list[Task]:
        """Do the same without suspending, for code without an event loop."""
        return self.portal.run(self.store_tasks(tasks))

    @asynccontextmanager
    async def redirected(self, url: str, clock: Clock) -> AsyncIterator[OpenStore]:
        """Use another store and clock during the block; for tests."""
        usual, self.opener = self.opener, StoreOpener(partial(self._open_store, url, clock))
        try:
            yield await self.open()
        finally:
            redirected, self.opener = self.opener, usual
            await redirected.close()

    async def _open_store(self, url: str | None, clock: Clock | None) -> OpenStore:
        refuse_while_imported()
        spans = open_spans() if self.settings.traces.enabled else None
        stores = await open_stores(url or self.settings.store.url, self.settings, clock)
        if spans is not None:
            stores = spans.over(stores)
        return OpenStore(stores, self.settings, self.author)

    async def _close(self) -> None:
        await self.opener.close()
        self.portal.stop()

    async def _enqueue_many(self, calls: Sequence[Invocation[R]]) -> list[TaskHandle[R]]:
        _check_calls(calls)
        opened = await self.open()
        tasks = make_tasks(calls, now=opened.stores.clock.now())
        return self._handles(calls, await opened.keep(tasks) if tasks else [])

    def _enqueue_many_blocking(self, calls: Sequence[Invocation[R]]) -> list[TaskHandle[R]]:
        _check_calls(calls)
        opened = self.opener.opened or self.portal.run(self.open())
        tasks = make_tasks(calls, now=opened.stores.clock.now())
        return self._handles(calls, opened.store_blocking(tasks, self.portal) if tasks else [])

    def _handles(self, calls: Sequence[Invocation[R]], stored: Sequence[Task]) -> list[TaskHandle[R]]:
        return [TaskHandle(self, task.id, call.signature) for task, call in zip(stored, calls, strict=True)]

    async def _enqueue_by_name(
        self, name: str, arguments: dict[str, Any], allow_unknown: bool, options: TaskOptions
    ) -> TaskHandle[Any]:
        call = await self.call_by_name(name, arguments, allow_unknown, options)
        if is_run(name):  # the run might have to notify its parent conversation
            return await self.agents.enqueue_run(call, arguments)
        [handle] = await self._enqueue_many([call])
        return handle

    async def _draft(
        self, name: str, arguments: dict[str, Any], allow_unknown: bool, options: TaskOptions
    ) -> TaskHandle[Any]:
        call = await self.call_by_name(name, arguments, allow_unknown, options)
        opened = await self.open()
        [task] = make_tasks([call], now=opened.stores.clock.now())
        [handle] = self._handles([call], await opened.keep([structs.replace(task, status=Status.DRAFT)]))
        return handle

    async def call_by_name(
        self, name: str, arguments: dict[str, Any], allow_unknown: bool, options: TaskOptions
    ) -> Invocation[Any]:
        """Return a call of a task that this app or a worker defines. Raises UnknownName."""
        handler = self.registry.by_name.get(name)
        if handler is not None:
            function: TaskFunction[..., Any] = TaskFunction(self, handler)
            return function.with_options(**options).call(**arguments)
        opened = await self.open()
        definition, args = await arguments_by_name(opened.stores, name, arguments, allow_unknown=allow_unknown)
        return Invocation(make_plan(self.template_of(definition), options), args)


def _check_calls(calls: Sequence[Invocation[R]]) -> None:
    for call in calls:
        if not isinstance(call, Invocation):
            raise InvalidTask(f"enqueue_many takes calls written down with `f.call(...)`, not {repr(call)[:60]}")
