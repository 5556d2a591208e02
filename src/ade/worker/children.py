"""Child processes for handlers of mode `process`: started when needed, used again, killed when told to."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw

from ade.core.errors import AdeError, InvalidTask
from ade.core.outcome import Failed, Succeeded
from ade.queue.handlers import Handler
from ade.worker import wire
from ade.worker.child import PYTHONPATH_BEFORE
from ade.worker.failures import died
from ade.worker.kinship import import_path
from ade.worker.wire import Answer, Call, Facts, Raised, Refused, Request, Returned

Respond = Callable[[Request], Awaitable[Any]]
_CALLS_PER_CHILD = 1_000  # then a fresh one: what handlers leak goes with the process


class Child:
    """One process, used for one call at a time."""

    def __init__(self, process: asyncio.subprocess.Process, line: tuple[asyncio.StreamReader, asyncio.StreamWriter]):
        self._process = process
        self._reader, self._writer = line
        self._calls = 0

    @classmethod
    async def start(cls) -> "Child":
        """Spawned, never forked. Its own session: signals to the worker's group do not reach it, kills reach all."""
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = ("-P", "-m", "ade.worker.child", str(theirs.fileno()), str(os.getpid()))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=_environment(),
            )
        return cls(process, await asyncio.open_unix_connection(sock=ours))

    @property
    def is_worn(self) -> bool:
        return self._calls >= _CALLS_PER_CHILD or self._process.returncode is not None

    async def converse(self, call: Call, respond: Respond) -> Succeeded | Failed:
        """Have the call performed and answer what it asks meanwhile. A process that dies is an outcome."""
        self._calls += 1
        try:
            await wire.write_frame(self._writer, wire.encode(call))
            while True:
                message = wire.decode_from_child(await wire.read_frame(self._reader))
                if isinstance(message, Returned):
                    return Succeeded(message.result)
                if isinstance(message, Raised):
                    return message.failure
                await wire.write_frame(self._writer, wire.encode(await _respond(respond, message)))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.kill()
            return _how_it_died(await self._process.wait())

    def kill(self) -> None:
        """End it and whatever it has started."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        self.kill()
        self._writer.close()
        await self._process.wait()


class Children:
    """The idle processes. How many are busy at once is the caller's affair."""

    def __init__(self) -> None:
        self._idle: list[Child] = []

    async def run(
        self, call: Call, respond: Respond, on_start: Callable[[Callable[[], None]], None]
    ) -> Succeeded | Failed:
        """Run one call in a process; `on_start` is given the way to kill it."""
        child = self._idle.pop() if self._idle else await Child.start()
        on_start(child.kill)
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
        idle, self._idle = self._idle, []
        for child in idle:
            await child.close()


def check_importable(handler: Handler) -> None:
    """Raises InvalidTask for a function that another process could not find."""
    if "<" in handler.function.__qualname__:
        raise InvalidTask(
            f"task {handler.name!r} runs in a process, so {handler.function.__qualname__} must be defined at the top"
            " of its module"
        )


def call_of(handler: Handler, args: Raw, facts: Facts) -> Call:
    """How the child finds the function again. Raises InvalidTask if it cannot."""
    check_importable(handler)
    module, qualname = handler.function.__module__, handler.function.__qualname__
    main_path = None
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec is not None else module
        main_path = None if spec is not None else getattr(main, "__file__", None)
    return Call(module, qualname, main_path, args, facts)


async def _respond(respond: Respond, request: Request) -> Answer | Refused:
    try:
        return Answer(Raw(wire.encode(await respond(request))))
    except AdeError as error:
        return Refused(error.code, error.detail)


def _how_it_died(code: int) -> Failed:
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
        return died(f"process died with signal {name}", signal=-code)
    return died(f"process ended with exit code {code} before it answered", exit_code=code)


def _environment() -> dict[str, str]:
    """The child imports what the worker can import; it puts PYTHONPATH back before any handler sees it."""
    environment = dict(os.environ)
    if "PYTHONPATH" in environment:
        environment[PYTHONPATH_BEFORE] = environment["PYTHONPATH"]
    environment["PYTHONPATH"] = import_path()
    return environment
