"""Messages between a worker and its child processes, and the requests of a run's context.

A frame is a length followed by JSON, in both directions. Every message contains its run ID, so that a message of one
run is never taken for another's.
"""

import socket
import struct
from asyncio import StreamReader, StreamWriter

import msgspec
from msgspec import Raw, Struct

from ade.locks.model import LockItem
from ade.locks.requests import LeaveLock, TakeLock
from ade.tasks.model import Effect, MaybeRaw, Task
from ade.tasks.outcomes import Failed

_LENGTH = struct.Struct(">I")


class ReportProgress(Struct, frozen=True, tag=True):
    """Store this as the run's progress."""

    value: Raw


class WriteOutput(Struct, frozen=True, tag=True):
    """Store this line of the run's output."""

    text: str
    stream: str = "log"  # program output uses other streams, which the worker does not log


class BeginEffect(Struct, frozen=True, tag=True):
    """Record that a side effect has started; answered by the stored effect."""

    key: str


class FinishEffect(Struct, frozen=True, tag=True):
    """A side effect is complete, with this result."""

    key: str
    answer: Raw


class ForgetEffect(Struct, frozen=True, tag=True):
    """Allow a side effect to be performed again."""

    key: str


class EnqueueChildren(Struct, frozen=True, tag=True):
    """Enqueue tasks as children of this one; answered by the stored tasks."""

    tasks: list[Task]


class RequestStepApproval(Struct, frozen=True, tag=True, kw_only=True):
    """Continue only if reviewers have decided on this step; answered by a HoldResponse, or None if the run must wait.

    For a tool call, the guard decides whether approval is required.
    """

    step: str
    about: Raw
    policies: tuple[str, ...] = ()
    reason: str = ""
    is_tool: bool = False
    judged: MaybeRaw = None  # what the guard checks, if reviewers see something else: secrets may be hidden
    responses: bool = False  # whether the handler reads responses; otherwise they raise StepDenied


class CheckToolCall(Struct, frozen=True, tag=True):
    """Check whether a tool call is allowed by now; answered by a Leave. Requests no approval."""

    tool: str
    about: Raw
    judged: MaybeRaw = None


Request = (
    ReportProgress
    | WriteOutput
    | BeginEffect
    | FinishEffect
    | ForgetEffect
    | EnqueueChildren
    | TakeLock
    | LeaveLock
    | RequestStepApproval
    | CheckToolCall
)


class ContextRequest(Struct, frozen=True, tag=True):
    """A request of a run; the answer carries its number."""

    run_id: str
    number: int
    request: Request


class EffectState(Struct, frozen=True):
    """The stored effect of a key, and whether the run that stored it is alive."""

    effect: Effect
    live: bool


class RequestFailed(Struct, frozen=True, tag=True):
    """The request failed; the error is raised again in the handler."""

    run_id: str
    number: int
    code: str
    detail: str


class ContextReply(Struct, frozen=True, tag=True):
    """The response to a request of a run."""

    run_id: str
    number: int
    value: Raw


class RunInfo(Struct, frozen=True, kw_only=True):
    """What a handler can read about its run."""

    task_id: str
    name: str
    attempt: int
    worker: str
    run_id: str
    author: str | None = None
    writers: frozenset[str] = frozenset()  # who cannot approve what the run enqueues
    trace: str | None = None  # its trace context
    progress: MaybeRaw = None  # the last progress reported by an earlier run of the task
    scope: str = ""  # the lock scope of the run
    locks: tuple[LockItem, ...] = ()  # of its task


class HandlerCall(Struct, frozen=True, tag=True):
    """Run this function, found by module and qualified name, with these arguments."""

    module: str
    qualname: str
    main_path: str | None  # set when the module is a script
    args: Raw
    facts: RunInfo
    is_main: bool = False  # the function is defined in the program that the worker was started as
    code: str = ""  # hash of the code that was approved; empty if none had to be


class HandlerReturned(Struct, frozen=True, tag=True):
    """The handler returned this result."""

    run_id: str
    result: Raw


class HandlerRaised(Struct, frozen=True, tag=True):
    """The handler failed."""

    run_id: str
    failure: Failed


FromChild = HandlerReturned | HandlerRaised | ContextRequest
ToChild = HandlerCall | ContextReply | RequestFailed

encode = msgspec.json.encode
decode_from_child = msgspec.json.Decoder(FromChild).decode
decode_to_child = msgspec.json.Decoder(ToChild).decode


async def read_frame(reader: StreamReader) -> bytes:
    """Read the next message. Raises IncompleteReadError if the peer is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


async def write_frame(writer: StreamWriter, message: bytes) -> None:
    """Write a message and wait until the buffer is drained."""
    writer.write(_LENGTH.pack(len(message)) + message)
    await writer.drain()


def receive(line: socket.socket) -> bytes:
    """Block until the next message arrives. Raises EOFError if the peer is gone."""
    (length,) = _LENGTH.unpack(_receive_exactly(line, _LENGTH.size))
    return _receive_exactly(line, length)


def send(line: socket.socket, message: bytes) -> None:
    """Send a message, blocking."""
    line.sendall(_LENGTH.pack(len(message)) + message)


def _receive_exactly(line: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = line.recv(min(size - len(received), 1 << 20))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)
