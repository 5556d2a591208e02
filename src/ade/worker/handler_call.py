"""Invokes a handler in its mode and converts any result or error to an Outcome. A task's own errors never raise."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgspec import Raw, structs

from ade.errors import STORE_TROUBLE, InvalidArguments, InvalidResult, PayloadTooLarge, UnknownName
from ade.failures import FailureKind, TaskError
from ade.locks.task_locks import enter_scope
from ade.logs import Log
from ade.tasks.handlers import Handler, HandlerMode
from ade.tasks.model import Task
from ade.tasks.outcomes import Failed, Outcome, Released, Succeeded
from ade.worker.child_pool import ChildProcess, ChildProcessPool, ProcessGroupRegistry, call_of
from ade.worker.context_backend import ContextBackend, facts_of
from ade.worker.failures import failed, failure_of
from ade.worker.run import Run
from ade.worker.threads import ForkGuard, HandlerThreads

_TROUBLE_DELAY_MS = 1_000  # before a run whose arguments could not be read is claimed again
_SPILL_PAUSE_S = 1.0  # between two attempts to store a large result
log = Log("ade.worker")


class Middleware(Protocol):
    """Wraps every run: calls `proceed` to go on, and sees its outcome."""

    async def __call__(self, task: Task, proceed: Callable[[], Awaitable[Outcome]]) -> Outcome: ...


class PayloadReader(Protocol):
    """Loads and stores arguments and results that are too large for a record."""

    def fits(self, raw: Raw) -> bool: ...

    async def load(self, raw: Raw) -> Raw: ...

    async def spill(self, task_id: str, kind: str, raw: Raw) -> Raw: ...


class HandlerInvoker:
    """Invokes handlers on the event loop, in threads, or in child processes."""

    def __init__(
        self,
        desk: ContextBackend,
        payloads: PayloadReader,
        middleware: Sequence[Middleware] = (),
        groups: ProcessGroupRegistry | None = None,
    ) -> None:
        self._desk = desk
        self._payloads = payloads
        self._middleware = tuple(middleware)
        self._threads = HandlerThreads("ade-handler")
        self._children = ChildProcessPool(groups)

    def perform(self, run: Run) -> Awaitable[Outcome]:
        """Return the outcome of the run. CancelledError propagates: the caller that ended the run has the reason."""
        if run.handler is None:
            return _unknown(run.task.name)
        if not self._middleware:
            return self.attempt(run, run.handler)
        return self._through_middleware(run, run.handler)

    async def close(self) -> None:
        self._threads.close()
        await self._children.close()

    async def _through_middleware(self, run: Run, handler: Handler) -> Outcome:
        async def innermost() -> Outcome:
            return await self.attempt(run, handler)

        def wrap(layer: Middleware, inner: Callable[[], Awaitable[Outcome]]) -> Callable[[], Awaitable[Outcome]]:
            return lambda: layer(run.task, inner)

        proceed: Callable[[], Awaitable[Outcome]] = innermost
        for layer in reversed(self._middleware):
            proceed = wrap(layer, proceed)
        try:
            return await proceed()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return failure_of(error)

    async def attempt(self, run: Run, handler: Handler) -> Outcome:
        """Invoke this handler, which can differ from the task's own, without middleware."""
        if self._payloads.fits(run.task.args):
            return await self._call(run, handler, run.task.args)
        try:
            args = await self._payloads.load(run.task.args)
        except STORE_TROUBLE as error:  # the handler was not called
            reason = f"its arguments could not be read: {error.detail}"
            return Released(reason, _TROUBLE_DELAY_MS, has_begun=False)
        except Exception as error:
            return _not_called(failure_of(error))
        return await self._call(run, handler, args)

    async def _call(self, run: Run, handler: Handler, args: Raw) -> Outcome:
        try:
            if handler.mode is HandlerMode.PROCESS:
                outcome = await self._in_process(run, handler, args)
                return outcome if isinstance(outcome, Failed) else await self._kept(run, outcome.result)
            arguments = handler.signature.decode(args)
        except InvalidArguments as error:
            return _not_called(failed(FailureKind.BAD_ARGUMENTS, error))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return failure_of(error)
        try:
            if handler.mode is HandlerMode.ASYNC:
                context = None if handler.signature.parameters.context is None else self._desk.context(run)
                positional, named = handler.signature.place(arguments, context)
                with ForkGuard():
                    value = await handler.function(*positional, **named)
            else:
                value = await self._in_thread(run, handler, arguments)
        except asyncio.CancelledError:  # a handler can raise anything; only cancellation is not its own failure
            raise
        except BaseException as error:
            return failure_of(error)
        try:
            result = handler.signature.encode_result(value)
        except InvalidResult as error:
            return failed(FailureKind.BAD_RESULT, error)
        return Succeeded(result) if self._payloads.fits(result) else await self._kept(run, result)

    async def _in_thread(self, run: Run, handler: Handler, arguments: dict[str, Any]) -> Any:
        """Run in a thread. A thread cannot be stopped; its context tells it that it should end."""
        context = None if handler.signature.parameters.context is None else self._desk.sync_context(run)
        positional, named = handler.signature.place(arguments, context)

        def call() -> Any:
            if run.locks:
                enter_scope(run, threading.get_ident())
            return handler.function(*positional, **named)

        run.in_thread = True
        returned = self._threads.call(call)
        try:
            return await returned
        finally:
            run.in_thread = returned.cancelled()  # then the thread goes on

    async def _in_process(self, run: Run, handler: Handler, args: Raw) -> Succeeded | Failed:
        def on_start(child: ChildProcess) -> None:
            run.child = child
            if run.stop is not None:
                child.kill()

        call = call_of(handler, args, facts_of(run), is_governed=run.task.digest is not None)
        try:
            return await self._children.run(call, lambda request: self._desk.answer(run, request), on_start)
        finally:
            run.child = None

    async def _kept(self, run: Run, result: Raw) -> Outcome:
        """Return the result, or a reference to it if it is large. While the store has trouble, it is stored again."""
        if self._payloads.fits(result):
            return Succeeded(result)
        task, kind = run.task, f"{run.task.generation}.{run.task.attempt}.result"
        try:
            while True:
                try:
                    return Succeeded(await self._payloads.spill(task.id, kind, result))
                except STORE_TROUBLE as error:
                    run.finishing = True  # the work is done: giving the run up would discard it
                    log.warning("result.repeated", task_id=task.id, error=str(error), pause_s=_SPILL_PAUSE_S)
                    await asyncio.sleep(_SPILL_PAUSE_S)
        except PayloadTooLarge as error:
            return failed(FailureKind.BAD_RESULT, error)
        except Exception as error:
            return failure_of(error)
        finally:
            run.finishing = False  # after the preview of a task, its own handler is still to come


async def _unknown(name: str) -> Outcome:
    return _not_called(failed(FailureKind.UNKNOWN_NAME, UnknownName(f"this worker has no task named {name!r}")))


def _not_called(failure: Failed) -> Failed:
    """Return the failure of a run whose handler was not called, so that there is nothing to roll back."""
    return structs.replace(failure, has_begun=False)


def own_cancellation() -> Failed:
    """Return the failure of a handler that ended in CancelledError although it was not told to end."""
    message = "the handler was cancelled from within: something it awaited was cancelled"
    return Failed(TaskError(kind=FailureKind.RAISED, type="CancelledError", message=message))
