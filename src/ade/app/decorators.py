"""`@ade.task` and `@ade.cron`, typed: the parameters and the result of the function carry over to the task.

A context that comes first is filled in by the worker, so it is no parameter of the task. Elsewhere in the signature
give it a default for type checkers' sake: `ctx: Context | None = None`.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from ade.app.functions import AsyncTask, PlainTask, TaskFunction, make_handler
from ade.tasks.handlers import HandlerMode
from ade.tasks.options import DeclaredOptions
from ade.worker.context import Context, SyncContext

if TYPE_CHECKING:
    from ade.app.ade import Ade

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator:
    """Makes a task of a function: `@ade.task`, or `@ade.task(timeout=60, max_attempts=5)`."""

    def __init__(
        self,
        app: "Ade",
        declared: DeclaredOptions | None = None,
        then: Callable[[TaskFunction[..., Any]], None] | None = None,
    ) -> None:
        self._app = app
        self._declared: DeclaredOptions = declared or {}
        self._then = then

    # A coroutine function is a function too: the first overload that fits wins, so the overlaps do no harm.
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
