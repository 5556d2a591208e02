"""The pool of child processes for handlers of mode `process`: started on demand, reused, and killed when told to."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import DecodeError, Raw

from ade.errors import AdeError, InvalidTask
from ade.tasks.handlers import Handler, code_hash
from ade.tasks.outcomes import Failed, Succeeded
from ade.worker import messages
from ade.worker.child_process import PYTHONPATH_BEFORE, SCRIPT
from ade.worker.failures import died
from ade.worker.messages import (
    ContextReply,
    ContextRequest,
    HandlerCall,
    HandlerRaised,
    HandlerReturned,
    Request,
    RequestFailed,
    RunInfo,
)
from ade.worker.watchdog import import_path

Respond = Callable[[Request], Awaitable[Any]]
_CALLS_PER_CHILD = 1_000  # then a new one, so that resources leaked by handlers are freed
_LAST_WORDS_S = 1.0  # for a process with a closed connection to exit, so that its own exit code is reported


class ProcessGroupRegistry(Protocol):
    """Registry of process groups that must not outlive the worker."""

    def add_group(self, group: int) -> None: ...

    def remove_group(self, group: int) -> None: ...


class ChildProcess:
    """A child process that runs one call at a time."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        line: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        on_gone: Callable[["ChildProcess"], None],
    ) -> None:
        self._process = process
        self._reader, self._writer = line
        self._on_gone = on_gone
        self._calls = 0
        self._is_gone = False
        self._ended = asyncio.create_task(self._watch())

    @classmethod
    async def start(cls, on_gone: Callable[["ChildProcess"], None]) -> "ChildProcess":
        """Spawn a process in its own session: signals to the worker's group do not reach it, and kills reach its
        children.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                arguments = ("-P", "-m", "ade.worker.child_process", str(theirs.fileno()), str(os.getpid()))
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, *arguments),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env=_environment(),
                )
            return cls(process, await asyncio.open_unix_connection(sock=ours), on_gone)
        except BaseException:
            ours.close()  # then the process exits
            raise

    @property
    def group(self) -> int:
        """The process group of this process and its children."""
        return self._process.pid

    @property
    def is_worn(self) -> bool:
        return self._calls >= _CALLS_PER_CHILD or self._is_gone

    async def converse(self, call: HandlerCall, respond: Respond) -> Succeeded | Failed:
        """Run the call and serve its requests meanwhile. The death of the process becomes an outcome."""
        self._calls += 1
        run_id = call.facts.run_id
        try:
            await messages.write_frame(self._writer, messages.encode(call))
            while True:
                message = messages.decode_from_child(await messages.read_frame(self._reader))
                if message.run_id != run_id:
                    return await self._distrust("the process answered for another run, so it was killed")
                if isinstance(message, HandlerReturned):
                    return Succeeded(message.result)
                if isinstance(message, HandlerRaised):
                    return message.failure
                await messages.write_frame(self._writer, messages.encode(await self._answer_to(message, respond)))
        except (asyncio.IncompleteReadError, ConnectionError):
            await asyncio.wait({self._ended}, timeout=_LAST_WORDS_S)
            self.kill()
            return _how_it_died(await self._ended)
        except DecodeError:
            return await self._distrust("the process sent an unreadable response, so it was killed")

    async def _answer_to(self, ask: ContextRequest, respond: Respond) -> ContextReply | RequestFailed:
        """Serve a request. It can take long, as with locks, and is abandoned if the process dies."""
        answering = asyncio.ensure_future(_respond(respond, ask))
        try:
            await asyncio.wait({answering, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise ConnectionResetError("the process is gone")
            return answering.result()
        finally:
            answering.cancel()

    def kill(self) -> None:
        """Kill the process and its children."""
        if not self._is_gone:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)

    async def close(self) -> None:
        self.kill()
        await asyncio.wait({self._ended})

    async def _watch(self) -> int:
        """Detect the exit of the process even if a child of it keeps the connection open, and kill its group."""
        try:
            return await self._process.wait()
        finally:
            self.kill()  # immediately: once the group is empty, its number can be reused
            self._is_gone = True
            self._on_gone(self)
            self._writer.transport.abort()

    async def _distrust(self, why: str) -> Failed:
        await self.close()
        return died(why)


class ChildProcessPool:
    """The pool of idle processes. The caller limits the concurrency."""

    def __init__(self, groups: ProcessGroupRegistry | None = None) -> None:
        self._groups = groups
        self._idle: list[ChildProcess] = []
        self._all: set[ChildProcess] = set()

    async def run(
        self, call: HandlerCall, respond: Respond, on_start: Callable[[ChildProcess], None]
    ) -> Succeeded | Failed:
        """Run one call in a process; `on_start` gets the process, which it can kill."""
        child = self._idle.pop() if self._idle else await self._new()
        on_start(child)
        try:
            outcome = await child.converse(call, respond)
        except BaseException:
            child.kill()
            raise
        if child.is_worn:
            await child.close()
        else:
            self._idle.append(child)
        return outcome

    async def close(self) -> None:
        """Kill all processes, including those whose call was abandoned."""
        self._idle.clear()
        for child in list(self._all):
            await child.close()

    async def _new(self) -> ChildProcess:
        child = await ChildProcess.start(self._forget)
        self._all.add(child)
        if self._groups is not None:
            self._groups.add_group(child.group)
        return child

    def _forget(self, child: ChildProcess) -> None:
        """Remove a dead process, even if it was idle, so that it gets no more calls."""
        self._all.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        if self._groups is not None:
            self._groups.remove_group(child.group)


def check_importable(handler: Handler) -> None:
    """Raise InvalidTask for a function that another process could not import."""
    if "<" in handler.function.__qualname__:
        raise InvalidTask(
            f"task {handler.name!r} runs in a process, so {handler.function.__qualname__} must be defined at the top"
            " of its module"
        )
    main = sys.modules["__main__"]
    is_typed_in = getattr(main, "__spec__", None) is None and getattr(main, "__file__", None) is None
    if handler.function.__module__ == "__main__" and is_typed_in:
        raise InvalidTask(f"task {handler.name!r} runs in a process, so it must be defined in a file")


def call_of(handler: Handler, args: Raw, facts: RunInfo, *, is_governed: bool = False) -> HandlerCall:
    """Return the call with which the child finds the function. Raises InvalidTask if it cannot.

    The child imports the function from its file, which might have changed. For a governed task it checks that.
    """
    check_importable(handler)
    module, qualname = handler.function.__module__, handler.function.__qualname__
    main_path = None
    is_main = module in ("__main__", SCRIPT)
    if is_main:
        main = sys.modules[module]
        spec = getattr(main, "__spec__", None) if module == "__main__" else None
        module = spec.name if spec is not None else module
        main_path = None if spec is not None else getattr(main, "__file__", None)
    code = code_hash(handler.function) if is_governed else ""
    return HandlerCall(module, qualname, main_path, args, facts, is_main, code)


async def _respond(respond: Respond, ask: ContextRequest) -> ContextReply | RequestFailed:
    try:
        return ContextReply(ask.run_id, ask.number, Raw(messages.encode(await respond(ask.request))))
    except AdeError as error:
        return RequestFailed(ask.run_id, ask.number, error.code, error.detail)


def _how_it_died(code: int) -> Failed:
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
        return died(f"process died with signal {name}", signal=-code)
    return died(f"process ended with exit code {code} before it answered", exit_code=code)


def _environment() -> dict[str, str]:
    """Let the child import what the worker can; the child restores PYTHONPATH before a handler runs."""
    environment = dict(os.environ)
    if "PYTHONPATH" in environment:
        environment[PYTHONPATH_BEFORE] = environment["PYTHONPATH"]
    environment["PYTHONPATH"] = import_path()
    return environment
