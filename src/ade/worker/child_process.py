"""The child process that runs handlers of mode `process`, one call at a time, until its worker closes the connection.

The worker starts it as `python -m ade.worker.child_process <descriptor> <worker's pid>`. Arguments and results are
sent as JSON, so nothing of the handler has to be pickled.
"""

import contextlib
import importlib
import importlib.util
import inspect
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

import msgspec
from msgspec import Raw

from ade import errors as ade_errors
from ade.common.trace_context import VARIABLE, environment_of_trace
from ade.errors import AdeError, InvalidArguments, InvalidResult, InvalidTask, RunOver, UnguardedMain
from ade.failures import FailureKind
from ade.locks.holder import LockScope, current
from ade.locks.requests import TakeLock, TakenLock
from ade.tasks.arguments import Signature
from ade.tasks.handlers import being_imported, code_hash
from ade.tasks.model import Task
from ade.tasks.outcomes import Failed, HoldResponse
from ade.worker import messages
from ade.worker.context import Context, SyncContext
from ade.worker.failures import failed, failure_of
from ade.worker.instrumentation import RunReference, current_run
from ade.worker.messages import (
    BeginEffect,
    ContextReply,
    ContextRequest,
    EffectState,
    EnqueueChildren,
    HandlerCall,
    HandlerRaised,
    HandlerReturned,
    Request,
    RequestFailed,
    RequestStepApproval,
    RunInfo,
)
from ade.worker.threads import ForkGuard, leave
from ade.worker.watchdog import die_with_parent

PYTHONPATH_BEFORE = "ADE_CHILD_PYTHONPATH"  # the worker passes its sys.path in PYTHONPATH
SCRIPT = "__ade_main__"
_ANSWERS: dict[type, Any] = {
    BeginEffect: EffectState,
    EnqueueChildren: list[Task],
    TakeLock: TakenLock,
    RequestStepApproval: HoldResponse | None,
}


class WorkerConnection:
    """The connection to the worker. It is closed in forked processes, which must never answer in place of this one."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        os.set_inheritable(line.fileno(), False)
        os.register_at_fork(after_in_child=line.close)

    def send(self, message: bytes) -> None:
        messages.send(self._line, message)

    def receive(self) -> messages.ToChild:
        message: messages.ToChild = messages.decode_to_child(messages.receive(self._line))
        return message


class RunRequests:
    """Sends the requests of one run to the worker, one at a time, from any thread."""

    def __init__(self, run_id: str, line: WorkerConnection) -> None:
        self._run_id = run_id
        self._line = line
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._number = 0
        self._is_over = False

    async def __call__(self, request: Request) -> Any:
        if os.getpid() != self._pid:  # before the lock, which a thread left behind by the fork may hold
            raise RunOver("a context cannot be used in a process that its run has forked")
        with _signals_wait(), self._lock:
            if self._is_over:
                raise RunOver
            self._number += 1
            answer = self._exchange(messages.encode(ContextRequest(self._run_id, self._number, request)))
        if isinstance(answer, RequestFailed):
            raise _error_of(answer)
        return msgspec.json.decode(answer.value, type=_ANSWERS.get(type(request), type(None)))

    def _exchange(self, asked: bytes) -> ContextReply | RequestFailed:
        """Send a request and receive its response, or exit: half a message would corrupt all that follow."""
        try:
            self._line.send(asked)
            answer = self._line.receive()
        except BaseException as error:  # the worker is gone, or a signal handler has raised anyway
            leave(error)
        if isinstance(answer, HandlerCall) or (answer.run_id, answer.number) != (self._run_id, self._number):
            os._exit(1)  # the connection can no longer be trusted
        return answer

    def end(self) -> None:
        """Reject further requests, after the current one is answered."""
        with self._lock:
            self._is_over = True


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Block signals: a signal handler can raise and would tear a message.

    Another thread can still receive the signal, whose handler then interrupts this block if it runs in the main
    thread.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main() -> None:
    """Run calls from the worker until it closes the connection."""
    die_with_parent(int(sys.argv[2]))
    _restore_environment()
    line = WorkerConnection(socket.socket(fileno=int(sys.argv[1])))
    while True:
        try:
            call = line.receive()
        except (EOFError, ConnectionError):
            return
        if isinstance(call, HandlerCall):
            line.send(messages.encode(perform(call, line)))


def perform(call: HandlerCall, line: WorkerConnection) -> HandlerReturned | HandlerRaised:
    """Run one call; any failure becomes the response."""
    asking = RunRequests(call.facts.run_id, line)
    _tell_trace(call.facts.trace)
    facts = call.facts
    current_run.set(RunReference(facts.task_id, facts.run_id, facts.scope, facts.author, facts.writers))
    try:
        outcome = _outcome(call, SyncContext(Context(call.facts, asking, lambda: False)))
    finally:
        asking.end()
    if isinstance(outcome, Failed):
        return HandlerRaised(call.facts.run_id, outcome)
    return HandlerReturned(call.facts.run_id, outcome)


def _tell_trace(trace: str | None) -> None:
    """Set the trace context for programs that the function starts, and for its own tracing."""
    told = environment_of_trace(trace)
    if not told:
        os.environ.pop(VARIABLE, None)
    os.environ.update(told)


def _outcome(call: HandlerCall, context: SyncContext) -> Raw | Failed:
    try:
        function, signature = find(call.module, call.qualname, call.main_path, is_main=call.is_main)
        if call.code and code_hash(function) != call.code:
            raise InvalidTask(f"the code of {call.qualname} has changed since its worker started; restart the worker")
    except (SyntaxError, UnguardedMain) as error:
        return failed(FailureKind.UNRECOVERABLE, error)
    except BaseException as error:
        return failure_of(error)
    try:
        args, kwargs = signature.place(signature.decode(call.args), context)
    except InvalidArguments as error:
        return failed(FailureKind.BAD_ARGUMENTS, error)
    if call.facts.locks:
        _enter_scope(call.facts)
    try:
        with ForkGuard():
            value = function(*args, **kwargs)
    except BaseException as error:  # including SystemExit: the call ends, not the process
        return failure_of(error)
    try:
        return signature.encode_result(value)
    except InvalidResult as error:
        return failed(FailureKind.BAD_RESULT, error)


def _enter_scope(facts: RunInfo) -> None:
    """Let the function's other locks wait in the scope of the run, so that deadlocks with its locks are detected."""
    current.set(LockScope(threading.get_ident(), facts.scope))


@cache
def find(
    module_name: str, qualname: str, main_path: str | None, *, is_main: bool = False
) -> tuple[Callable[..., Any], Signature]:
    """Return the function without its decorators, and its signature. Raises InvalidTask if it cannot be imported."""
    with being_imported() if is_main else contextlib.nullcontext():
        found: Any = importlib.import_module(module_name) if main_path is None else _script(main_path)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InvalidTask(f"{module_name}.{qualname} cannot be imported; define it at the top of its module")
    function = inspect.unwrap(found)
    return function, Signature.of(function)


@cache
def _script(path: str) -> ModuleType:
    """Import the script the worker was started as, under another name so that its main part does not run."""
    spec = importlib.util.spec_from_file_location(SCRIPT, path)
    if spec is None or spec.loader is None:
        raise InvalidTask(f"{path} cannot be imported; put the task into a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]  # like an import: a partial module must not be found
        raise
    return module


def _error_of(refused: RequestFailed) -> AdeError:
    known = (kind for kind in vars(ade_errors).values() if isinstance(kind, type) and issubclass(kind, AdeError))
    kind = next((kind for kind in known if kind.code == refused.code), AdeError)
    return kind(refused.detail)


def _restore_environment() -> None:
    before = os.environ.pop(PYTHONPATH_BEFORE, None)
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before


if __name__ == "__main__":
    main()
