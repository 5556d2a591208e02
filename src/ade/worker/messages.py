"""Messages between a worker and its child processes: a length, then JSON. The same words in both directions.

Every message names the run it belongs to, so that nothing said for one run can ever be taken for another's.
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
    """Keep this as the run's progress."""

    value: Raw


class WriteOutput(Struct, frozen=True, tag=True):
    """Keep this line of the run's output."""

    text: str
    stream: str = "log"  # what a program printed is of another one, and not logged by the worker as well


class BeginEffect(Struct, frozen=True, tag=True):
    """Enter a side effect as begun; answered by what the ledger has."""

    key: str


class FinishEffect(Struct, frozen=True, tag=True):
    """A side effect is done, with this answer."""

    key: str
    answer: Raw


class ForgetEffect(Struct, frozen=True, tag=True):
    """Let a side effect be performed again."""

    key: str


class EnqueueChildren(Struct, frozen=True, tag=True):
    """Enqueue tasks as children of this one; answered by the stored tasks."""

    tasks: list[Task]


class RequestStepApproval(Struct, frozen=True, tag=True, kw_only=True):
    """Go on only if people have agreed to this step; answered by whether it may.

    For a tool call the guard decides whether people must agree at all.
    """

    step: str
    about: Raw
    policies: tuple[str, ...] = ()
    reason: str = ""
    is_tool: bool = False
    judged: MaybeRaw = None  # what the guard looks at, if people are shown something else: secrets may be hidden


class CheckToolCall(Struct, frozen=True, tag=True):
    """Whether a tool may be used like this by now; answered by a Leave. Nothing is asked of anybody."""

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
    """What the ledger has under a key, and whether the run that entered it is alive."""

    effect: Effect
    live: bool


class RequestFailed(Struct, frozen=True, tag=True):
    """The request failed; the error is raised again where it came from."""

    run_id: str
    number: int
    code: str
    detail: str


class ContextReply(Struct, frozen=True, tag=True):
    run_id: str
    number: int
    value: Raw


class RunInfo(Struct, frozen=True, kw_only=True):
    """What a handler may know about its run."""

    task_id: str
    name: str
    attempt: int
    worker: str
    run_id: str
    author: str | None = None
    trace: str | None = None  # where it stands in a trace
    progress: MaybeRaw = None  # what an earlier run of the task has told last
    scope: str = ""  # what its locks are held and waited for under
    locks: tuple[LockItem, ...] = ()  # of its task


class HandlerCall(Struct, frozen=True, tag=True):
    """Run this function, found by module and qualified name, with these arguments."""

    module: str
    qualname: str
    main_path: str | None  # set when the module is a script
    args: Raw
    facts: RunInfo
    is_main: bool = False  # the function stands in the program that the worker was started as


class HandlerReturned(Struct, frozen=True, tag=True):
    run_id: str
    result: Raw


class HandlerRaised(Struct, frozen=True, tag=True):
    run_id: str
    failure: Failed


FromChild = HandlerReturned | HandlerRaised | ContextRequest
ToChild = HandlerCall | ContextReply | RequestFailed

encode = msgspec.json.encode
decode_from_child = msgspec.json.Decoder(FromChild).decode
decode_to_child = msgspec.json.Decoder(ToChild).decode


async def read_frame(reader: StreamReader) -> bytes:
    """The next message; IncompleteReadError when the other side is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)


async def write_frame(writer: StreamWriter, message: bytes) -> None:
    writer.write(_LENGTH.pack(len(message)) + message)
    await writer.drain()


def receive(line: socket.socket) -> bytes:
    """The next message, waiting for it; EOFError when the other side is gone."""
    (length,) = _LENGTH.unpack(_receive_exactly(line, _LENGTH.size))
    return _receive_exactly(line, length)


def send(line: socket.socket, message: bytes) -> None:
    line.sendall(_LENGTH.pack(len(message)) + message)


def _receive_exactly(line: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = line.recv(min(size - len(received), 1 << 20))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)
