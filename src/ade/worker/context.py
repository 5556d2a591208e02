"""The context with which a handler accesses the queue while it runs. One implementation for all three modes.

A method sends a request and awaits its response. On the event loop the await suspends. In a thread or child process
the send blocks until the response arrives, so the same coroutine completes without ever being suspended.
"""

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec
from msgspec import Raw, structs

from ade.common.text import storable
from ade.errors import EffectInProgress, EffectUnknown, InvalidResult, InvalidTask
from ade.locks.model import DEFAULT_NAMESPACE, LockSpec, lock_specs_of, merged
from ade.locks.requests import TakeLock, ttl_ms_of, wait_ms_of
from ade.locks.requests import validate_request as ask_for
from ade.locks.run_locks import ContextLocks, Held, RunLock, SyncRunLock
from ade.tasks.arguments import CODING_ERRORS, decode_foreign, to_json, to_plain
from ade.tasks.model import Task
from ade.tasks.outcomes import HoldResponse, Leave, RunHeld
from ade.worker.messages import (
    BeginEffect,
    CheckToolCall,
    EffectState,
    EnqueueChildren,
    FinishEffect,
    ForgetEffect,
    ReportProgress,
    Request,
    RequestStepApproval,
    RunInfo,
    WriteOutput,
)

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)
SendRequest = Callable[[Request], Awaitable[Any]]
_LINE_LIMIT = 8_000
_LONGEST_STEP = 200


class Enqueueable(Protocol[P, H_co]):
    """A task function as `enqueue` needs it: creates the record and, later, the handle."""

    def make_task(self, *args: P.args, **kwargs: P.kwargs) -> Task: ...

    def handle_of(self, task: Task) -> H_co: ...


class Context:
    """For async handlers: `async def f(x: int, ctx: Context)`. Plain functions take a SyncContext."""

    __ade_context__ = True

    def __init__(self, facts: RunInfo, ask: SendRequest, is_stopped: Callable[[], bool], held: Held = dict) -> None:
        self.task_id = facts.task_id
        self.name = facts.name
        self.attempt = facts.attempt
        self.worker = facts.worker
        self.author = facts.author
        self.trace = facts.trace
        self.run_id = self._run_id = facts.run_id
        self._ask = ask
        self._is_stopped = is_stopped
        self._begun: set[str] = set()
        self._facts = facts
        self._held = held

    @property
    def cancelled(self) -> bool:
        """Whether this run has been told to end: cancelled, timed out, lost to another worker, or shut down."""
        return self._is_stopped()

    def raise_if_cancelled(self) -> None:
        """End here if the run has been told to."""
        if self._is_stopped():
            raise asyncio.CancelledError(f"task {self.task_id} was told to end")

    async def progress(self, value: object) -> None:
        """Keep how far the run has come, in whatever form of JSON suits the task."""
        await self._ask(ReportProgress(to_json(to_plain(value))))

    @property
    def last_progress(self) -> Any:
        """What an earlier run of this task has told last with `progress`, or None: where to go on."""
        return None if self._facts.progress is None else msgspec.json.decode(self._facts.progress)

    async def log(self, message: str, /, **fields: object) -> None:
        """Write a line of the task's output, which is kept with the task and logged by the worker."""
        told = "".join(f" {name}={value}" for name, value in fields.items())
        await self._ask(WriteOutput(storable(f"{message}{told}"[:_LINE_LIMIT])))

    async def print(self, line: str, /, stream: str = "stdout") -> None:
        """Keep a line that a program has printed, under the name of its stream. It is not logged by the worker."""
        await self._ask(WriteOutput(storable(line[:_LINE_LIMIT]), stream))

    @overload
    async def once(self, key: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def once(self, key: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def once(self, key: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Perform a side effect once under this key, whatever happens to the runs of this task name.

        When it is known to be done, its stored answer is returned. When an earlier run began it and never reported
        the end, or the function raised, nobody knows whether it happened: EffectUnknown, and nothing is performed.
        When a live run is at it: EffectInProgress.
        """
        return await self._once(key, function, *args, **kwargs)

    async def _once(self, key: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        scoped = self._scoped(key)
        entry: EffectState = await self._ask(BeginEffect(scoped))
        if entry.effect.done:
            return cast(T, _stored(entry.effect.answer, function))
        if entry.effect.run_id != self._run_id and entry.live:
            raise EffectInProgress(f"another run is performing {key!r} right now; try again later")
        if entry.effect.run_id != self._run_id or key in self._begun:
            raise EffectUnknown(
                f"{key!r} was started and its end never reported, so whether it happened is unknown; find out, then"
                " ctx.settle(key, answer) if it did or ctx.forget(key) if it did not"
            )
        self._begun.add(key)
        answer: Any = function(*args, **kwargs)
        if inspect.isawaitable(answer):
            answer = await answer
        await self._keep(scoped, answer)
        return cast(T, answer)

    async def _keep(self, scoped: str, answer: object) -> None:
        """The effect has happened, so it is recorded as done even when its answer cannot be."""
        try:
            raw = to_json(to_plain(answer))
        except CODING_ERRORS as error:
            await self._ask(FinishEffect(scoped, Raw(b"null")))
            raise InvalidResult(f"the effect is done, but its answer cannot be kept as JSON: {error}") from None
        await self._ask(FinishEffect(scoped, raw))

    async def settle(self, key: str, answer: object) -> None:
        """Record that an unknown effect did happen, with this answer."""
        await self.forget(key)
        await self._ask(BeginEffect(self._scoped(key)))
        await self._keep(self._scoped(key), answer)

    async def forget(self, key: str) -> None:
        """Record that an unknown effect did not happen, so that it may be performed."""
        self._begun.discard(key)
        await self._ask(ForgetEffect(self._scoped(key)))

    async def enqueue(self, function: Enqueueable[P, H], /, *args: P.args, **kwargs: P.kwargs) -> H:
        """Enqueue a child of this task."""
        task = function.make_task(*args, **kwargs)
        child = structs.replace(task, parent_id=self.task_id, trace=task.trace or self.trace)
        [stored] = await self._ask(EnqueueChildren([child]))
        return function.handle_of(stored)

    async def hold(
        self,
        step: str,
        /,
        about: object = None,
        *,
        policy: str | None = None,
        reason: str = "",
        responses: bool = False,
    ) -> HoldResponse:
        """Go on only once people have agreed to this step, and to what it is `about`.

        Until then the task waits without a worker. It runs again from the start when they have decided, so put earlier
        steps in `ctx.once`; this call then returns immediately. With `responses`, it also returns when they respond
        instead: the response is true only if the step, or the `args` of the response, were approved. Without it, a
        response raises StepDenied.
        """
        if not step.strip() or len(step) > _LONGEST_STEP:
            raise InvalidTask(f"ctx.hold needs a name for the step, of 1 to {_LONGEST_STEP} characters")
        named = () if policy is None else (policy,)
        return await self._hold(
            RequestStepApproval(
                step=step, about=to_json(to_plain(about)), policies=named, reason=reason, responses=responses
            )
        )

    async def guard(self, tool: str, arguments: dict[str, Any], /, *, shown: dict[str, Any] | None = None) -> None:
        """Ask the guard about a tool call: returns if it is allowed, raises Denied, or waits as `hold` does.

        If reviewers respond instead of approving the call, it raises StepDenied with the response.

        `shown` is what people see and agree to, where that is not the arguments: with secrets hidden, say.
        """
        judged = to_json(to_plain(arguments))
        about = judged if shown is None else to_json(to_plain(shown))
        await self._hold(RequestStepApproval(step=f"tool {tool}", about=about, is_tool=True, judged=judged))

    async def allows(self, tool: str, arguments: dict[str, Any], /, *, shown: dict[str, Any] | None = None) -> Leave:
        """What the guard says of a tool call by now, without asking anybody. Raises Denied."""
        judged = to_json(to_plain(arguments))
        return Leave(
            await self._ask(CheckToolCall(tool, judged if shown is None else to_json(to_plain(shown)), judged))
        )

    async def _hold(self, wanted: RequestStepApproval) -> HoldResponse:
        response: HoldResponse | None = await self._ask(wanted)
        if response is None:
            raise RunHeld(f"task {self.task_id} waits for people at: {wanted.step}")
        return response

    def lock(
        self,
        *wanted: str | LockSpec,
        namespace: str = DEFAULT_NAMESPACE,
        ttl: float | None = None,
        wait: float | None = None,
        purpose: str | None = None,
    ) -> RunLock:
        """Hold locks for a block: `async with ctx.lock("repo:app") as lock`, all or none of what is named.

        A bare name is to be written; read("db:main") shares. With `wait` seconds LockTimeout is raised after them. When
        a lock is lost, the run is told to end: it is cancelled, and tried again if attempts are left.
        """
        specs = merged(lock_specs_of(wanted))
        ttl_ms, wait_ms = ttl_ms_of(ttl), wait_ms_of(wait)
        # Validate the other options here, where they were written; scope and ID are set when the lock is entered.
        ask_for(id="x", owner="x", scope="x", wanted=specs, namespace=namespace, ttl_ms=ttl_ms, purpose=purpose)
        taking = TakeLock(
            specs=list(specs), scope="", namespace=namespace, ttl_ms=ttl_ms, wait_ms=wait_ms, purpose=purpose
        )
        return RunLock(self._locks, taking)

    def token(self, resource: str) -> int:
        """The fencing token of something this run has locked, its task's locks included. Raises LockLost."""
        return self._locks.token(resource)

    @cached_property
    def _locks(self) -> ContextLocks:
        return ContextLocks(self._facts.scope, self._facts.locks, self._ask, self._is_stopped, self._held)

    def _scoped(self, key: str) -> str:
        return f"{self.name}/{key}"


def _blocking(
    method: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncContext", P], T]:
    """Return the method for synchronous handlers: it returns when it is done."""

    @wraps(method)
    def wait(self: "SyncContext", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _run_through(method(self._context, *args, **kwargs))

    return wait


def _run_through(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    coroutine.close()
    raise InvalidTask("a plain function cannot wait for an async one; give ctx.once a plain function")


class SyncContext:
    """For plain functions, in a thread or a process: the methods of Context, which wait until they are done."""

    __ade_context__ = True

    def __init__(self, context: Context) -> None:
        self._context = context
        self.task_id = context.task_id
        self.name = context.name
        self.attempt = context.attempt
        self.worker = context.worker
        self.author = context.author
        self.trace = context.trace
        self.run_id = context.run_id

    @property
    def last_progress(self) -> Any:
        """What an earlier run of this task has told last with `progress`, or None: where to go on."""
        return self._context.last_progress

    @property
    def cancelled(self) -> bool:
        """Whether this run has been told to end. A process is killed instead."""
        return self._context.cancelled

    def raise_if_cancelled(self) -> None:
        self._context.raise_if_cancelled()

    def lock(
        self,
        *wanted: str | LockSpec,
        namespace: str = DEFAULT_NAMESPACE,
        ttl: float | None = None,
        wait: float | None = None,
        purpose: str | None = None,
    ) -> SyncRunLock:
        """Hold locks for a block: `with ctx.lock("repo:app") as lock`. See Context.lock; look at `cancelled`."""
        lock = self._context.lock(*wanted, namespace=namespace, ttl=ttl, wait=wait, purpose=purpose)
        return SyncRunLock(lock, _run_through)

    def token(self, resource: str) -> int:
        """The fencing token of something this run has locked, its task's locks included. Raises LockLost."""
        return self._context.token(resource)

    progress = _blocking(Context.progress)
    log = _blocking(Context.log)
    print = _blocking(Context.print)
    once = _blocking(Context._once)
    settle = _blocking(Context.settle)
    forget = _blocking(Context.forget)
    enqueue = _blocking(Context.enqueue)
    hold = _blocking(Context.hold)
    guard = _blocking(Context.guard)
    allows = _blocking(Context.allows)


def _stored(answer: Raw | None, function: Callable[..., object]) -> Any:
    """Return the stored result, converted to the function's declared type if possible."""
    if answer is None:
        return None
    try:
        declared = typing.get_type_hints(function).get("return", Any)
        return msgspec.json.decode(answer, type=declared, dec_hook=decode_foreign)
    except (TypeError, ValueError, NameError):  # unreadable type hints, or a result that does not match them
        return msgspec.json.decode(answer)
