"""Runs one program for an agent and sees to its end: nothing it has started is there afterwards.

Between this process and the program stands a keeper, a small process that does the killing and the reaping, and that
outlives this one for as long as that takes. So nothing survives the end of the program, nor a cancellation, nor a
limit, nor SIGKILL of this process. Out of reach is only what another service does at the program's wish (a container,
a cron job, another machine).

Nothing here blocks the event loop. Who takes the output slowly slows the program down: nothing piles up.
"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable
from enum import StrEnum, auto
from typing import IO, Any

from msgspec import Struct

from ade.agents import beats, keeper, reaping
from ade.agents.limits import make_directory
from ade.agents.outputs import CHUNK, Keeping, Kept, Mask, OnOutput, Output, Stream
from ade.agents.starting import ProcessSpec, Started, brief_for, check, refusal, start_keeper
from ade.core.agent_runs.lines import LineCutter
from ade.core.agent_runs.redaction import secrets_in
from ade.logs import Log

_KEEPERS_END_S = 15.0  # for a keeper that has been left; it gives up earlier than that
log = Log("ade.agents")


class Why(StrEnum):
    """Why a run has ended. The first cause counts."""

    EXITED = auto()
    SIGNALLED = auto()  # by a signal that is not from here: its own fault, the kernel short of memory, or somebody
    TIME_LIMIT = auto()
    MEMORY_LIMIT = auto()
    STOPPED = auto()  # as the caller wished
    WORKER_GONE = auto()  # this process was silent for too long, and is back now
    LOST = auto()  # its keeper was killed, and all was ended for that; how the program fared is not known


class Ended(Struct, frozen=True, kw_only=True):
    """How a run has ended. All its processes are gone, except as many as `left` says."""

    why: Why
    exit_code: int | None = None  # None if it was a signal, or is not known
    signal: int | None = None
    duration_s: float = 0.0
    peak_memory: int = 0  # bytes: of all processes when they were looked at, or of the largest one at any time
    left: int = 0  # processes that even SIGKILL did not end: another user's, or stuck in the kernel
    stdout: Kept = Kept(text="")
    stderr: Kept = Kept(text="")

    @property
    def cut(self) -> bool:
        """Whether more was printed than is kept."""
        return self.stdout.cut_bytes > 0 or self.stderr.cut_bytes > 0


async def run_process(
    spec: ProcessSpec,
    *,
    on_bytes: OnOutput | None = None,
    on_line: OnOutput | None = None,
    on_start: Callable[[int], None] | None = None,
    stop: asyncio.Event | None = None,
) -> Ended:
    """Run the program to its end, whatever end that is. Raises ProgramNotStarted if there is none to run.

    Output comes to `on_bytes` in pieces and to `on_line` in lines as it is printed, secrets masked; `on_start` is
    given the process id, which is that of the process group too. `stop` ends the run: SIGTERM, and after the grace
    SIGKILL. Cancelling does the same, and a second time hurries it; the cancellation goes on when all is over. An
    error of a callback ends the run and is raised then.
    """
    check(spec)
    run = _Run(spec, _output("stdout", spec, on_bytes, on_line), _output("stderr", spec, on_bytes, on_line), on_start)
    performing = asyncio.create_task(run.perform())
    stopping = asyncio.create_task(_order_when(stop, run)) if stop is not None else None
    try:
        return await _see_through(performing, run, patience_s=spec.limits.grace_s + _KEEPERS_END_S)
    finally:
        if stopping is not None:
            stopping.cancel()


def _output(name: Stream, spec: ProcessSpec, on_bytes: OnOutput | None, on_line: OnOutput | None) -> Output:
    mask = Mask([*spec.secrets, *secrets_in(spec.environment)])
    lines = LineCutter(spec.limits.line_bytes) if on_line is not None else None
    return Output(name, mask, Keeping(spec.limits.kept_bytes), lines, on_bytes, on_line)


async def _order_when(stop: asyncio.Event, run: "_Run") -> None:
    await stop.wait()
    run.order(keeper.END)


async def _see_through(performing: "asyncio.Task[Ended]", run: "_Run", patience_s: float) -> Ended:
    """A cancelled caller waits too, until nothing is left. Only a callback that hangs is not waited for for ever."""
    cancelled: asyncio.CancelledError | None = None
    while not performing.done():
        try:
            _, late = await asyncio.wait({performing}, timeout=None if cancelled is None else patience_s)
            if late:
                performing.cancel()
        except asyncio.CancelledError as error:
            run.order(keeper.END if cancelled is None else keeper.KILL)
            cancelled = error
    if cancelled is None:
        return performing.result()
    if not performing.cancelled() and (failure := performing.exception()) is not None:
        log.warning("process.failed", error=str(failure))
    raise cancelled


class _Run:
    def __init__(
        self, spec: ProcessSpec, stdout: Output, stderr: Output, on_start: Callable[[int], None] | None
    ) -> None:
        self._spec = spec
        self._mark = reaping.new_mark()
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

    async def perform(self) -> Ended:
        """In a task of its own, which the caller's cancellation does not touch."""
        await asyncio.to_thread(make_directory, self._spec.directory, self._spec.care)
        started = await asyncio.to_thread(start_keeper, mark=self._mark, with_stdin=bool(self._spec.stdin))
        try:
            return await self._accompany(started)
        finally:
            started.line.close()  # by which the keeper ends whatever is there still
            await asyncio.to_thread(_see_off, started.process)

    async def _accompany(self, started: Started) -> Ended:
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
        """What the keeper says at the end, empty if it says nothing any more; then the marks lead to what is left."""
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
                    self.order(keeper.END)
            return await awaited
        except (asyncio.IncompleteReadError, ConnectionError):
            ended = await asyncio.to_thread(reaping.end_marked, self._mark)
            log.warning("process.keeper_lost", ended=ended)
            return {}

    def _ended(self, report: dict[str, Any]) -> Ended:
        stdout, stderr = self._stdout.keeping.kept(), self._stderr.keeping.kept()
        if not report:
            return Ended(why=Why.LOST, stdout=stdout, stderr=stderr)
        if report["left"]:
            log.warning("process.left", count=report["left"])
        status = report["status"]
        code = os.waitstatus_to_exitcode(status) if status is not None else None
        number = -code if code is not None and code < 0 else None
        return Ended(
            why=Why(report["why"] or (Why.EXITED if number is None else Why.SIGNALLED)),
            exit_code=code if number is None else None,
            signal=number,
            duration_s=report["duration_s"],
            peak_memory=report["peak_memory"],
            left=report["left"],
            stdout=stdout,
            stderr=stderr,
        )


def _give_brief(started: Started, spec: ProcessSpec, mark: str) -> Callable[[], None]:
    """And beat from then on, until what is answered is called: the loop may be blocked before it hears of the start.

    Blocks until the keeper has read it, or nearly.
    """
    with contextlib.suppress(ConnectionError):  # the keeper is gone already, which who reads from it sees
        started.line.sendall(keeper.pack(tuple(brief_for(spec, mark))))
    return beats.begin(started.line) if spec.limits.silence_s is not None else lambda: None


async def _connect_line(
    started: Started, stack: contextlib.AsyncExitStack
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


class _Feeding(asyncio.BaseProtocol):
    _is_over = False

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_over = True

    def end(self, transport: asyncio.WriteTransport) -> None:
        if not self._is_over:
            transport.abort()


async def _feed(started: Started, text: str, stack: contextlib.AsyncExitStack) -> None:
    """Written as fast as it is read, then closed. A program that does not want to read it all need not."""
    if started.stdin is None:
        return
    transport, feeding = await asyncio.get_running_loop().connect_write_pipe(_Feeding, started.stdin)
    stack.callback(feeding.end, transport)
    transport.write(text.encode("utf-8", "surrogateescape"))
    transport.close()


async def _message(line: asyncio.StreamReader) -> dict[str, Any]:
    length = int.from_bytes(await line.readexactly(keeper.LENGTH_BYTES), "big")
    message: dict[str, Any] = keeper.unpack(await line.readexactly(length))
    return message


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _see_off(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_KEEPERS_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
