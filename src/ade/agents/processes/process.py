"""Runs one program for an agent, and guarantees that none of the processes it started survives.

Between this process and the program is a supervisor: a small process that kills and reaps, and
that outlives this process if needed. So nothing survives the program's exit, a cancellation, a limit, or SIGKILL of
this process. The only exception is work that another service does on behalf of the program (a container, a cron job,
another machine).

Nothing here blocks the event loop. A slow reader of the output slows the program down, so no buffer grows.
"""

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum, auto
from pathlib import Path
from typing import IO, Any, NamedTuple

from msgspec import Struct

from ade.agents.processes import process_tree, supervisor
from ade.agents.processes.output import CHUNK, OnOutput, ProcessStream, SecretMask, Stream
from ade.agents.processes.process_tree import MARK
from ade.agents.processes.supervisor import BEAT, IN_DIRECTORY, LaunchSpec
from ade.agents.protocols.base import secrets_in
from ade.agents.runs.spec import DirectoryPolicy, ProcessLimits, make_directory
from ade.errors import ProgramNotStarted
from ade.logs import Log

# Heartbeats to supervisors, sent from a thread, because a blocked event loop does not mean a dead worker.


EVERY_S = 1.0
SHORTEST_SILENCE_S = 5.0  # tolerates late heartbeats on a busy machine


class _HeartbeatThread:
    def __init__(self) -> None:
        self._lines: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._has_lines = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, line: socket.socket) -> Callable[[], None]:
        """Send heartbeats on this socket until the returned function is called."""
        own = line.dup()
        own.setblocking(False)
        with self._lock:
            self._lines[id(own)] = own
            self._has_lines.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ade-agent-beats", daemon=True)
                self._thread.start()
        return lambda: self._end(own)

    def _end(self, own: socket.socket) -> None:
        with self._lock:
            self._drop(own)

    def _drop(self, own: socket.socket) -> None:
        self._lines.pop(id(own), None)
        own.close()
        if not self._lines:
            self._has_lines.clear()

    def _work(self) -> None:
        pause = threading.Event()
        while True:
            self._has_lines.wait()
            with self._lock:
                for own in tuple(self._lines.values()):
                    try:
                        own.send(BEAT)
                    except BlockingIOError:
                        pass  # the supervisor is busy, and has unread heartbeats
                    except OSError:
                        self._drop(own)  # the supervisor has exited
            pause.wait(EVERY_S)


begin = _HeartbeatThread().begin


# What to run, validation, and the start of the supervisor.


# The supervisor runs without site-packages and ignores environment variables, so that neither the agent nor the user
# can inject code.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from ade.agents.processes.supervisor import main; main()"
_FOR_THE_INTERPRETER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_LONGEST_SHOWN = 200


class ProcessSpec(Struct, frozen=True, kw_only=True):
    """A program with its arguments, environment, and limits."""

    arguments: Sequence[str]  # the program first: a name to find on its PATH, or a path
    directory: Path
    environment: Mapping[str, str]  # the complete environment
    care: DirectoryPolicy = DirectoryPolicy.EXISTING  # for the working directory
    stdin: str = ""
    limits: ProcessLimits = ProcessLimits()

    def __repr__(self) -> str:
        """Omit prompt and secrets, because tracebacks and log lines show this."""
        return f"ProcessSpec({self.arguments[:1]!r}, directory={str(self.directory)!r})"


class StartedProcess(NamedTuple):
    """The supervisor process, and this side of its socket and pipes."""

    process: "subprocess.Popen[bytes]"
    line: socket.socket
    stdin: IO[bytes] | None
    stdout: IO[bytes]
    stderr: IO[bytes]


def check(spec: ProcessSpec) -> None:
    """Raise ProgramNotStarted for values that the kernel cannot accept."""
    if not spec.arguments or not spec.arguments[0]:
        raise ProgramNotStarted("there is no program to start: the command is empty")
    for number, argument in enumerate(spec.arguments):
        _check_text(argument, f"argument {number} of {_shown(spec)}")
    for name, value in spec.environment.items():
        _check_text(name + value, f"the variable {name[:_LONGEST_SHOWN]!r} for {_shown(spec)}")
        if not name or "=" in name:
            raise ProgramNotStarted(f"{name[:_LONGEST_SHOWN]!r} cannot be the name of a variable")
    _check_text(str(spec.directory), "the working directory")


def _check_text(text: str, what: str) -> None:
    if "\0" in text:
        raise ProgramNotStarted(f"{what} contains a NUL character, which cannot be passed to a program; remove it")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ProgramNotStarted(f"{what} cannot be written as text: {error.reason}") from error


def brief_for(spec: ProcessSpec, mark: str) -> LaunchSpec:
    """Return the launch specification that is sent to the supervisor."""
    environment = {**spec.environment, MARK: mark}
    return LaunchSpec(
        [os.fsencode(argument) for argument in spec.arguments],
        {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
        os.fsencode(spec.directory),
        spec.limits.time_s,
        spec.limits.memory_bytes,
        spec.limits.grace_s,
        None if spec.limits.silence_s is None else max(spec.limits.silence_s, SHORTEST_SILENCE_S),
    )


def start_supervisor(*, mark: str, with_stdin: bool) -> StartedProcess:
    """Start the supervisor. Blocks for some milliseconds. It starts nothing before it receives its launch
    specification.
    """
    ours, theirs = socket.socketpair()
    environment = {name: os.environ[name] for name in _FOR_THE_INTERPRETER if name in os.environ}
    home = str(Path(__file__).parents[3])
    try:
        with theirs:
            process = subprocess.Popen(
                (sys.executable, "-I", "-S", "-c", _BOOT, home, str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C goes only to the worker, which handles the rest
                env={**environment, MARK: mark},
                cwd="/",  # keeps no file system busy
            )
    except BaseException:
        ours.close()
        raise
    assert process.stdout is not None
    assert process.stderr is not None
    return StartedProcess(process, ours, process.stdin, process.stdout, process.stderr)


def refusal(spec: ProcessSpec, where: str, number: int) -> ProgramNotStarted:
    """Return the error for a program that could not be started, with advice."""
    program = _shown(spec)
    if where == IN_DIRECTORY:
        return ProgramNotStarted(f"the working directory {spec.directory} cannot be used: {os.strerror(number)}")
    reasons = {
        errno.ENOENT: _not_found(spec),
        errno.EACCES: f"{program} may not be executed; make it executable (chmod +x) or name another program",
        errno.ENOEXEC: f"{program} is not a program for this machine; a script needs a first line such as #!/bin/sh",
        errno.E2BIG: f"the arguments of {program} are too long for the kernel; give the prompt by stdin",
    }
    return ProgramNotStarted(reasons.get(number) or f"{program} could not be started: {os.strerror(number)}")


def _not_found(spec: ProcessSpec) -> str:
    program = spec.arguments[0]
    if "/" not in program:
        path = spec.environment.get("PATH", os.defpath)
        return f"{_shown(spec)} was not found in PATH ({path}); install it, or name it by its whole path"
    if (spec.directory / program).exists():
        return (
            f"{_shown(spec)} names an interpreter in its first line that was not found; install it or correct the line"
        )
    return f"{_shown(spec)} does not exist; install it or correct the path"


def _shown(spec: ProcessSpec) -> str:
    return f"the program {spec.arguments[0][:_LONGEST_SHOWN]!r}"


_SUPERVISOR_END_S = 15.0  # for a supervisor to exit; it gives up earlier by itself
log = Log("ade.agents")


class ExitCause(StrEnum):
    """Why a run has ended. The first cause counts."""

    EXITED = auto()
    SIGNALLED = auto()  # by an external signal: a crash, the kernel's OOM killer, or another process
    TIME_LIMIT = auto()
    MEMORY_LIMIT = auto()
    STOPPED = auto()  # requested by the caller
    WORKER_GONE = auto()  # this process sent no heartbeat for too long, and is back now
    LOST = auto()  # its supervisor was killed, and all processes with it; the program's own outcome is unknown


class ProcessResult(Struct, frozen=True, kw_only=True):
    """The outcome of a run. All its processes have exited, except for `left` of them."""

    why: ExitCause
    exit_code: int | None = None  # None after a signal, or if unknown
    signal: int | None = None
    left: int = 0  # processes that SIGKILL did not end: of another user, or stuck in the kernel


async def run_process(
    spec: ProcessSpec,
    *,
    on_bytes: OnOutput | None = None,
    on_start: Callable[[int], None] | None = None,
    stop: asyncio.Event | None = None,
) -> ProcessResult:
    """Run the program to its end. Raises ProgramNotStarted if it cannot be started.

    Output goes to `on_bytes` in chunks as it is printed, with secrets masked. `on_start` receives the process ID, which
    is also the process group ID. `stop` ends the run: SIGTERM, then SIGKILL after the grace period. Cancellation does
    the same, and a second one kills immediately; the cancellation propagates when all processes have exited. A
    callback's error ends the run and is then raised.
    """
    check(spec)
    run = _ProcessRun(spec, _output("stdout", spec, on_bytes), _output("stderr", spec, on_bytes), on_start)
    performing = asyncio.create_task(run.perform())
    stopping = asyncio.create_task(_order_when(stop, run)) if stop is not None else None
    try:
        return await _see_through(performing, run, patience_s=spec.limits.grace_s + _SUPERVISOR_END_S)
    finally:
        if stopping is not None:
            stopping.cancel()


def _output(name: Stream, spec: ProcessSpec, on_bytes: OnOutput | None) -> ProcessStream:
    return ProcessStream(name, SecretMask(secrets_in(spec.environment)), on_bytes)


async def _order_when(stop: asyncio.Event, run: "_ProcessRun") -> None:
    await stop.wait()
    run.order(supervisor.END)


async def _see_through(
    performing: "asyncio.Task[ProcessResult]", run: "_ProcessRun", patience_s: float
) -> ProcessResult:
    """Wait until no process is left, even if the caller is cancelled. Only a callback that hangs is abandoned."""
    cancelled: asyncio.CancelledError | None = None
    while not performing.done():
        try:
            _, late = await asyncio.wait({performing}, timeout=None if cancelled is None else patience_s)
            if late:
                performing.cancel()
        except asyncio.CancelledError as error:
            run.order(supervisor.END if cancelled is None else supervisor.KILL)
            cancelled = error
    if cancelled is None:
        return performing.result()
    if not performing.cancelled() and (failure := performing.exception()) is not None:
        log.warning("process.failed", error=str(failure))
    raise cancelled


class _ProcessRun:
    def __init__(
        self, spec: ProcessSpec, stdout: ProcessStream, stderr: ProcessStream, on_start: Callable[[int], None] | None
    ) -> None:
        self._spec = spec
        self._mark = process_tree.new_mark()
        self._stdout = stdout
        self._stderr = stderr
        self._on_start = on_start
        self._line: asyncio.StreamWriter | None = None
        self._early_orders = b""

    def order(self, order: bytes) -> None:
        if self._line is None:
            self._early_orders += order
        elif not self._line.is_closing():
            self._line.write(order)

    async def perform(self) -> ProcessResult:
        """Run the process. Called in a separate task, which the caller's cancellation does not affect."""
        await asyncio.to_thread(make_directory, self._spec.directory, self._spec.care)
        started = await asyncio.to_thread(start_supervisor, mark=self._mark, with_stdin=bool(self._spec.stdin))
        try:
            return await self._accompany(started)
        finally:
            started.line.close()  # makes the supervisor kill any remaining process
            await asyncio.to_thread(_see_off, started.process)

    async def _accompany(self, started: StartedProcess) -> ProcessResult:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(await asyncio.to_thread(_give_brief, started, self._spec, self._mark))
            line, self._line = await _connect_line(started, stack)
            self._line.write(self._early_orders)
            await _feed(started, self._spec.stdin, stack)
            outputs = ((self._stdout, started.stdout), (self._stderr, started.stderr))
            readers = [(output, await _connect_reader(pipe, stack)) for output, pipe in outputs]
            reading = [asyncio.create_task(output.read(reader)) for output, reader in readers]
            stack.push_async_callback(_cancel, reading)
            report = await self._report(line, reading)
            for output, _ in outputs:
                output.hurry()
            await asyncio.gather(*reading)
        return self._ended(report)

    async def _report(self, line: asyncio.StreamReader, reading: list["asyncio.Task[None]"]) -> dict[str, Any]:
        """Return the supervisor's final report; empty if it was lost. Then the remaining processes are found by their
        mark.
        """
        try:
            start = await _message(line)
            if "refused" in start:
                raise refusal(self._spec, *start["refused"])
            if self._on_start is not None:
                self._on_start(start["pid"])
            awaited = asyncio.create_task(_message(line))
            pending: set[asyncio.Task[Any]] = {awaited, *reading}
            while not awaited.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if any(task.exception() is not None for task in done if task is not awaited):
                    self.order(supervisor.END)
            return await awaited
        except (asyncio.IncompleteReadError, ConnectionError):
            ended = await asyncio.to_thread(process_tree.end_marked, self._mark)
            log.warning("process.supervisor_lost", ended=ended)
            return {}

    def _ended(self, report: dict[str, Any]) -> ProcessResult:
        if not report:
            return ProcessResult(why=ExitCause.LOST)
        if report["left"]:
            log.warning("process.left", count=report["left"])
        status = report["status"]
        code = os.waitstatus_to_exitcode(status) if status is not None else None
        number = -code if code is not None and code < 0 else None
        return ProcessResult(
            why=ExitCause(report["why"] or (ExitCause.EXITED if number is None else ExitCause.SIGNALLED)),
            exit_code=code if number is None else None,
            signal=number,
            left=report["left"],
        )


def _give_brief(started: StartedProcess, spec: ProcessSpec, mark: str) -> Callable[[], None]:
    """Send the launch specification, and start heartbeats, because the event loop might block before the start is
    confirmed.

    Blocks until the supervisor has read nearly all of it. Returns a function that stops the heartbeats.
    """
    with contextlib.suppress(ConnectionError):  # the supervisor has exited, which its reader detects
        started.line.sendall(supervisor.pack(tuple(brief_for(spec, mark))))
    return begin(started.line) if spec.limits.silence_s is not None else lambda: None


async def _connect_line(
    started: StartedProcess, stack: contextlib.AsyncExitStack
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(sock=started.line)
    stack.callback(writer.transport.abort)
    return reader, writer


async def _connect_reader(pipe: IO[bytes], stack: contextlib.AsyncExitStack) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK, loop=loop)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe)
    stack.callback(transport.close)
    return reader


class _StdinFeed(asyncio.BaseProtocol):
    _is_over = False

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_over = True

    def end(self, transport: asyncio.WriteTransport) -> None:
        if not self._is_over:
            transport.abort()


async def _feed(started: StartedProcess, text: str, stack: contextlib.AsyncExitStack) -> None:
    """Write stdin as fast as it is read, then close it. A program that does not read all of it is not an error."""
    if started.stdin is None:
        return
    transport, feeding = await asyncio.get_running_loop().connect_write_pipe(_StdinFeed, started.stdin)
    stack.callback(feeding.end, transport)
    transport.write(text.encode("utf-8", "surrogateescape"))
    transport.close()


async def _message(line: asyncio.StreamReader) -> dict[str, Any]:
    length = int.from_bytes(await line.readexactly(supervisor.LENGTH_BYTES), "big")
    message: dict[str, Any] = supervisor.unpack(await line.readexactly(length))
    return message


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _see_off(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_SUPERVISOR_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
