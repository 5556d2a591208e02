"""What servers and programs say to ADE: answers over HTTP, event streams, the output of agents."""

import asyncio
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from ade.agents.profiles import BUILT_IN, Profile, ProtocolName
from ade.agents.protocols.base import RunEvent, read_record
from ade.agents.protocols.reader import OutputReader
from ade.agents.runs.failures import LONGEST_PAUSE_MS, RATE_LIMIT_MARKS, read_error
from ade.agents.runs.model import HookAnswer, HookRuling, parse_tool_request, reply_of
from ade.agents.runs.outcome import RunReport
from ade.client.responses import read_answer
from ade.client.responses import read_record as read_record_of
from ade.client.transport import RetryLimits, pause_after_problem
from ade.common.http.connection import ByteConnection, ClientRequest, HttpConnection, IncomingStream, ResponseHead
from ade.common.http.pool import ClientResponse
from ade.errors import AdeError, InvalidArguments, ServerUnreachable
from ade.events.sse import SseBlock, SseParser, block
from ade.server.pagination import RawContent, VersionedRecord
from ade.server.problems import ServerProblem, error_of, read_problem
from ade.worker.sweep import read_outcome
from tests.agents.runs.streams import PROGRAMS, plain, stream_of
from tests.domain import ROUTES, Event, OutputLine, Succeeded, User, plan_of, shape_of
from tests.fuzz.paper import PaperTransport, complete
from tests.fuzz.samples import sample
from tests.fuzz.table import header_of, let, pieces_of, target


async def _asked(pieces: list[bytes]) -> tuple[ResponseHead, bytes] | str:
    """What a client makes of these bytes of a server; of an error its sentence."""
    incoming, transport = IncomingStream(), PaperTransport()
    loop = asyncio.get_running_loop()
    writer = asyncio.StreamWriter(transport, asyncio.StreamReaderProtocol(incoming, loop=loop), incoming, loop)
    http = HttpConnection(ByteConnection(incoming, writer, "a:80"), "a", head_bytes=2_000)
    http.send(ClientRequest(method="GET", target="/"))
    for piece in pieces:
        incoming.feed_data(piece)
    incoming.feed_eof()
    try:
        head = await http.head()
        return head, await http.body(2_000)
    except ServerUnreachable as error:
        return error.detail
    finally:
        writer.close()


@target(
    "common.http.connection",
    "common.http.connection",
    seeds=[
        b"\x00HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"\x01HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"\x02HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"\x03HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"\x04HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    ],
    words=["HTTP/1.1 200 OK\r\n", "\r\n\r\n", "Content-Length: ", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"],
)
def answers_of_servers(data: bytes) -> None:
    whole, pieces = complete(_asked([data[1:]])), complete(_asked(pieces_of(data[1:], sum(data[:1]))))
    assert whole == pieces
    assert not isinstance(whole, str) or whole.isprintable()


@cache
def _kinds() -> list[Any]:
    answers = [shape_of(route.operation).answer for route in ROUTES]
    return [VersionedRecord[User], *dict.fromkeys(kind for kind in answers if kind is not None)]


def _records() -> Iterator[bytes]:
    for index, kind in enumerate(_kinds()):
        if index and kind is not RawContent:
            yield bytes([index]) + json.dumps(sample(plan_of(kind).wire)).encode()
    yield b"\x00" + b'{"code": "task_not_found", "title": "t", "status": 404, "detail": "d", "retry_after": "x"}'
    yield b"\x00" + b'{"code": "too_many_requests", "retry_after": 1e999}'


@target(
    "client.responses",
    "server.problems",
    seeds=_records,
    words=['{"', '":', "null", "[", '"code":', '"retry_after":', '"2026-01-31T12:00:00Z"', "1e999", "\\ud800"],
)
def records_of_servers(data: bytes) -> None:
    """A record, or one kind of error."""
    kinds, body = _kinds(), data[1:]
    response = ClientResponse(status=200, headers=[("etag", '"12"'), ("content-type", header_of(body[:60]))], body=body)
    let(lambda: read_answer(kinds[sum(data[:1]) % len(kinds)], response), ServerProblem)
    for status in (404, 429, 503):
        problem = read_problem(status, body, {"retry-after": header_of(body[:20])})
        assert isinstance(error_of(problem), AdeError)
        pause = pause_after_problem(problem, RetryLimits(), sent_before=True)
        assert pause is None or 0 <= pause <= RetryLimits().longest_pause_s


@target(
    "events.sse",
    "client.responses",
    seeds=[
        b'\x00id: 5\nevent: task.failed\ndata: {"type": "task.failed", "at": "2026-01-31T12:00:00Z", "seq": 5}\n\n',
        b"\x01\xef\xbb\xbf: heartbeat\r\nid: 7\r\n\r\nretry: 3000\rdata\rdata:x\r\r",
        b'\x02event: gap\ndata: {"after": 1, "until": 2}\n\nevent: end\ndata: {"reason": "x"}\n\n',
    ],
    words=["id: ", "event: ", "data: ", "retry: ", "\n\n", "\r\n", "\r", ":", "\xef\xbb\xbf", '{"seq": 1'],
)
def event_streams(data: bytes) -> None:
    stream = data[1:]
    whole, one = _blocks([stream])
    pieces, other = _blocks(pieces_of(stream, sum(data[:1])))
    assert whole == pieces
    assert (one.last_id, one.retry_ms) == (other.last_id, other.retry_ms)
    for each in whole or ():
        let(lambda: read_record_of(Event, each.data), ServerProblem)  # noqa: B023
        let(lambda: read_record_of(OutputLine, each.data), ServerProblem)  # noqa: B023
    text = stream.decode("utf-8", "replace")
    written = SseParser().feed(block(data=text, event="a", seq=1))
    assert written == [SseBlock("\n".join(re.split("\r\n|\r|\n", text)), "a")]


def _blocks(pieces: list[bytes]) -> tuple[list[SseBlock] | None, SseParser]:
    reader = SseParser(longest=2_000)
    return let(lambda: [found for piece in pieces for found in reader.feed(piece)], ValueError), reader


_PROFILES: list[Profile] = [*BUILT_IN.values(), plain(ProtocolName.TEXT), plain(ProtocolName.JSON)]


def _outputs() -> Iterator[bytes]:
    names = [profile.name for profile in _PROFILES]
    for program in PROGRAMS:
        yield bytes([names.index(program), 3]) + stream_of(program)
    yield bytes([len(_PROFILES) - 1, 1]) + b'noise\n{"result": "x", "is_error": false, "usage": {"input_tokens": 1e3}}'
    for index in range(len(_PROFILES)):
        yield bytes([index, 0]) + b"error: rate limit, try again in 1h 20m\nstatus: 429\nretry after 30"


@target(
    "agents.protocols.reader",
    "agents.protocols.base",
    "agents.protocols.base",
    "agents.protocols.claude",
    "agents.protocols.codex",
    "agents.protocols.gemini",
    "agents.protocols.letta",
    "agents.runs.failures",
    seeds=_outputs,
    words=[
        *(
            '{"type":',
            '"result"',
            '"assistant"',
            '"message"',
            '"usage":',
            '"error":',
            '"item.completed"',
            "\n",
            "\\ud800",
        ),
        *("rate limit", "retry after ", "status: 5", "limit reached|", "overloaded", "1e999", "9" * 20),
    ],
)
def outputs_of_agents(data: bytes) -> None:
    """Never an error, the same in whatever pieces it comes, and nothing that a store could not keep."""
    profile = _PROFILES[sum(data[:1]) % len(_PROFILES)]
    output = data[2:]
    whole = _run(profile, [output], output[:200])
    assert whole == _run(profile, pieces_of(output, sum(data[1:2])), output[:200])
    for each in (*whole[0], whole[1]):
        msgspec.json.encode(each)
    found = read_record(output)
    assert found is None or isinstance(found, dict)
    text = output.decode("utf-8", "replace")
    reading = read_error(text, rate_limit_marks=RATE_LIMIT_MARKS, model_marks=profile.model_marks)
    assert reading.retry_after_ms is None or 0 <= reading.retry_after_ms <= LONGEST_PAUSE_MS


def _run(profile: Profile, pieces: list[bytes], stderr: bytes) -> tuple[list[RunEvent], RunReport]:
    reader = OutputReader(profile, longest_line=1_000, longest_text=500, secrets=["hush-hush"])
    reader.feed_stderr(stderr)
    events = [event for piece in pieces for event in reader.feed(piece)]
    last, report = reader.finish(len(stderr) % 3)
    return events + last, report


@target(
    "agents.runs.model",
    seeds=[
        '{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t1"}',
        '{"hook_event_name": "BeforeTool", "tool_name": "x", "tool_input": {}}',
        '{"turn_id": 1, "tool_name": "x", "tool_input": {}}',
    ],
    words=['"tool_name":', '"tool_input":', '"turn_id":', "{", "null"],
)
def hook_calls(data: bytes) -> None:
    given = let(lambda: json.loads(data), ValueError, RecursionError)
    if isinstance(given, dict):
        asked = let(lambda: parse_tool_request(given), InvalidArguments)
        if asked is not None:
            for answer in HookAnswer:
                json.dumps(reply_of(asked.program, HookRuling(answer, "why"))._asdict())


@target(
    "worker.sweep",
    seeds=[
        '{"result": {"a": 1}}',
        '{"error": {"type": "ValueError", "message": "no", "kind": "raised", "details": {}}, "retry_after_ms": 5}',
        '{"released": "shutting down"}',
    ],
    words=[
        '"result":',
        '"error":',
        '"released":',
        '"retry_after_ms":',
        '"kind": "timed_out"',
        "\\ud800",
        "1e999",
        "[[[",
    ],
)
def outcomes_of_workers(data: bytes) -> None:
    """Workers in other languages write these; whatever they write is an outcome that a store can keep."""
    outcome = read_outcome(data)
    msgspec.json.encode(outcome)
    if isinstance(outcome, Succeeded):
        json.loads(bytes(outcome.result))
