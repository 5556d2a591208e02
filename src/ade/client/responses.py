"""Reading responses of a server: records, problems, event streams that resume, and waiting for a task."""

import asyncio
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, get_args, get_origin

import msgspec

from ade.client.transport import RetryLimits, backoff_s, pause_after_problem
from ade.common.http.pool import ClientResponse, HttpClient, StreamedResponse
from ade.errors import AdeError, ServerUnreachable, WaitTimeout
from ade.events.feed_items import TASK_IS_FINAL, FeedEnd, Gap
from ade.events.model import Event
from ade.events.sse import MEDIA_TYPE, SseBlock, SseParser
from ade.server.pagination import RawContent, VersionedRecord
from ade.server.problems import Problem, ServerProblem, error_of, read_problem
from ade.server.wire_format import plan_of
from ade.tasks.model import OutputLine
from ade.worker.instrumentation import current_run

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.tasks.model import Task


_VERSION = re.compile(r'"([0-9]{1,18})"', re.ASCII)
_FILE_NAME = re.compile(r'filename="([^"/\\]{1,200})"')
_NO_CONTENT, FIRST_REDIRECT, _FIRST_REFUSAL = 204, 300, 400
_LONGEST_REFUSAL = 1 << 20


def read_answer(kind: Any, response: ClientResponse) -> Any:
    """Return a response as a value of this type. Raises ServerProblem if it does not match."""
    if kind is type(None):
        return None
    if kind is RawContent:
        return content_of(response, response.body)
    if response.status == _NO_CONTENT:
        raise ServerProblem("the server sent an empty response instead of a record; its version may differ")
    if get_origin(kind) is VersionedRecord:
        [record] = get_args(kind)
        return VersionedRecord(read_record(record, response.body), _version(response))
    return read_record(kind, response.body)


def read_record(kind: Any, body: bytes | str) -> Any:
    """Decode a record. Fields that only a newer server knows are ignored. Raises ServerProblem."""
    try:
        return plan_of(kind).back(_decoder(kind).decode(body))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ServerProblem(f"the server's response cannot be read; its version may differ ({error})") from None


def content_of(response: ClientResponse | StreamedResponse, body: bytes | AsyncIterator[bytes]) -> RawContent:
    """Return a response that is not a record, with its whole body or a stream."""
    disposition = _FILE_NAME.search(response.header("content-disposition") or "")
    return RawContent(
        media_type=response.header("content-type") or "application/octet-stream",
        body=body,
        file_name=disposition[1] if disposition else None,
    )


async def problem_of_stream(response: StreamedResponse) -> Problem:
    """Return the problem of a rejected stream."""
    body = b""
    async for piece in response.chunks():
        body += piece
        if len(body) > _LONGEST_REFUSAL:
            break
    return problem_of(response, body)


def problem_of(response: ClientResponse | StreamedResponse, body: bytes) -> Problem:
    """Return the problem in an error response. A redirect is a problem too."""
    if response.status < _FIRST_REFUSAL:
        detail = f"the server answers with {response.status} and points to {response.header('location')!s:.200}"
        return Problem(code=ServerProblem.code, status=response.status, title="", detail=f"{detail}; use that address")
    named = ("retry-after", "www-authenticate")
    headers = {name: value for name in named if (value := response.header(name)) is not None}
    return read_problem(response.status, body, headers)


def _version(response: ClientResponse) -> int:
    match = _VERSION.fullmatch(response.header("etag") or "")
    if match is None:
        raise ServerProblem("the server's response has no ETag, so its version is unknown")
    return int(match[1])


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(plan_of(kind).wire)


_HEAD_S = 30.0
_SILENCE_S = 60.0  # a server sends something at least every 15 seconds


class StreamConnector(Protocol):
    """The parts of a transport that a stream needs to connect and reconnect."""

    patience: RetryLimits
    sleep: Callable[[float], Awaitable[None]]
    randomness: Callable[[], float]

    def client(self) -> HttpClient: ...

    def headers(self, accept: str) -> Mapping[str, str]: ...


async def follow_events(reach: StreamConnector, target: str) -> AsyncGenerator[Event | Gap, None]:
    """Yield events indefinitely, reconnecting after the last received event."""
    async with aclosing(_ResumingStream(reach, target).blocks()) as blocks:
        async for block in blocks:
            if block.event == "gap":
                yield _read(Gap, block)
            elif block.event != "end":
                event: Event = read_record(Event, block.data)
                yield event


async def follow_output(reach: StreamConnector, target: str) -> AsyncGenerator[OutputLine, None]:
    """Yield output lines until the task is final."""
    async with aclosing(_ResumingStream(reach, target).blocks()) as blocks:
        async for block in blocks:
            if block.event == "line":
                line: OutputLine = read_record(OutputLine, block.data)
                yield line
            elif block.event == "end" and _read(FeedEnd, block).reason == TASK_IS_FINAL:
                return


class _ResumingStream:
    """A stream that reconnects and continues after the last received ID."""

    def __init__(self, reach: StreamConnector, target: str) -> None:
        self._reach = reach
        self._client = reach.client()
        self._target = target
        self._last_id = ""
        self._retry_ms: int | None = None
        self._had_begun = False
        self._breaks = 0  # since the last data

    async def blocks(self) -> AsyncGenerator[SseBlock, None]:
        """Yield blocks. Raises AdeError if the server rejects the stream or does not return."""
        while True:
            pause = 0.0
            try:
                async with aclosing(self._stream()) as blocks:
                    async for block in blocks:
                        yield block
            except ServerUnreachable as broken:
                if self._client.is_closed:  # closed by its owner
                    raise
                self._check_patience(broken)
            except _RetryLater as later:
                self._check_patience(later.error)
                pause = later.pause_s
            await self._reach.sleep(max(pause, self._pause()))
            self._breaks += 1

    async def _stream(self) -> AsyncGenerator[SseBlock, None]:
        headers = {**self._reach.headers(MEDIA_TYPE), **({"last-event-id": self._last_id} if self._last_id else {})}
        asked = self._client.stream("GET", self._target, headers, timeout=_HEAD_S, silence=_SILENCE_S)
        async with asked as response:
            if response.status >= FIRST_REDIRECT:
                problem = await problem_of_stream(response)
                pause = pause_after_problem(problem, self._reach.patience, sent_before=False)
                raise error_of(problem) if pause is None else _RetryLater(error_of(problem), pause)
            self._had_begun = True
            reader = SseParser()
            async with aclosing(response.chunks()) as pieces:
                async for piece in pieces:
                    for block in _fed(reader, piece):
                        yield block
                    self._note(reader)

    def _note(self, reader: SseParser) -> None:
        self._breaks = 0
        self._last_id = reader.last_id or self._last_id
        self._retry_ms = self._retry_ms if reader.retry_ms is None else reader.retry_ms

    def _check_patience(self, error: AdeError) -> None:
        """Raise the error after too many breaks, or immediately if the server was never reached."""
        patience, is_break = self._reach.patience, isinstance(error, ServerUnreachable)
        most = patience.stream_repeats if self._had_begun else 0 if is_break else patience.repeats
        if self._breaks >= most:
            raise error

    def _pause(self) -> float:
        """The reconnect delay of the server with jitter, or a longer backoff after several breaks."""
        reach = self._reach
        wanted = 0.0 if self._retry_ms is None else min(self._retry_ms / 1000, reach.patience.longest_pause_s)
        return max(wanted * (0.5 + reach.randomness()), backoff_s(self._breaks, reach.randomness()))


class _RetryLater(Exception):
    """The server requests a retry later."""

    def __init__(self, error: AdeError, pause_s: float) -> None:
        super().__init__(pause_s)
        self.error = error
        self.pause_s = pause_s


def _fed(reader: SseParser, piece: bytes) -> list[SseBlock]:
    try:
        return reader.feed(piece)
    except ValueError as error:
        raise ServerProblem(f"the server's stream cannot be read: {error}") from None


def _read(kind: type[Any], block: SseBlock) -> Any:
    try:
        return msgspec.json.decode(block.data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ServerProblem(f"the server's stream cannot be read ({error})") from None


_LONGEST_WAIT_S = 60  # per request
_BREAKS = 8  # in a row, about 15 seconds


class TaskWait:
    """Waits for one task, also across server restarts. `closings` counts how often the client was closed."""

    def __init__(self, client: "Client", task_id: str, closings: Callable[[], int]) -> None:
        self._client = client
        self._task_id = task_id
        self._closings = closings

    async def final(self, timeout: float | None) -> "Task":
        """Return the task once it is final. Raises WaitTimeout after `timeout` seconds."""
        task = await self._client.get_task(self._task_id)  # also with a timeout of 0
        try:
            async with asyncio.timeout(timeout):
                while not task.is_final:
                    task = await self._after_a_while()
        except TimeoutError:
            raise WaitTimeout(
                f"task {self._task_id} was {task.status} after {timeout:g} seconds; it continues"
            ) from None
        return task

    async def _after_a_while(self) -> "Task":
        """Return the task when it is final or after one minute. Wait for a server that restarts."""
        before, run = self._closings(), current_run.get()
        waiting: dict[str, Any] = {} if run is None else {"run": run.run_id, "run_task": run.task_id}
        for times in range(_BREAKS):
            try:
                return await self._client.get_task(self._task_id, wait=_LONGEST_WAIT_S, **waiting)
            except ServerUnreachable:
                if self._closings() != before:
                    raise
                await asyncio.sleep(backoff_s(times, random.random()))
        return await self._client.get_task(self._task_id, wait=_LONGEST_WAIT_S, **waiting)
