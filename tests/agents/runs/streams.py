"""What the four programs print in a whole run, small enough to be cut at every byte."""

import json
from typing import Any

from ade.agents.profiles import BUILT_IN, Profile, ProtocolName
from ade.agents.protocols.base import LONGEST_LINE, LONGEST_TEXT, RunEvent
from ade.agents.protocols.reader import OutputReader
from ade.agents.runs.outcome import RunReport

RECORDS: dict[str, list[dict[str, Any]]] = {
    "letta": [
        {"type": "system", "subtype": "init", "session_id": "agent-1", "agent_id": "agent-1", "conversation_id": "c-1"},
        {"type": "auto_approval", "tool_call": {"tool_call_id": "t1", "name": "Bash", "arguments": "{}"}},
        {"type": "message", "message_type": "usage_statistics", "total_tokens": 40, "step_count": 1},
        {"type": "result", "subtype": "success", "result": "Grüße 🙂", "num_turns": 2, "usage": {"total_tokens": 90}},
    ],
    "claude": [
        {"type": "system", "subtype": "init", "session_id": "s-1", "model": "sonnet"},
        {"type": "assistant", "message": {"id": "m1", "content": [{"type": "text", "text": "Grüße 🙂"}], "usage": {}}},
        {"type": "result", "subtype": "success", "is_error": False, "result": "Grüße 🙂", "total_cost_usd": 0.5},
    ],
    "codex": [
        {"type": "thread.started", "thread_id": "th-1"},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "i1", "type": "agent_message", "text": "Grüße 🙂"}},
        {"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 6}},
    ],
    "gemini": [
        {"type": "init", "session_id": "s-1", "model": "pro"},
        {"type": "message", "role": "assistant", "content": "Grüße ", "delta": True},
        {"type": "message", "role": "assistant", "content": "🙂", "delta": True},
        {"type": "result", "status": "success", "stats": {"total_tokens": 7}},
    ],
}
PROGRAMS = sorted(RECORDS)


def lines_of(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def stream_of(program: str) -> bytes:
    return lines_of(*RECORDS[program])


def read(
    profile: Profile | str,
    *pieces: bytes,
    exit_code: int = 0,
    stderr: bytes = b"",
    longest_line: int = LONGEST_LINE,
    longest_text: int = LONGEST_TEXT,
) -> tuple[list[RunEvent], RunReport]:
    """All events and the report of these pieces of output."""
    chosen = BUILT_IN[profile] if isinstance(profile, str) else profile
    reader = OutputReader(chosen, longest_line=longest_line, longest_text=longest_text)
    reader.feed_stderr(stderr)
    events = [event for piece in pieces for event in reader.feed(piece)]
    last, report = reader.finish(exit_code)
    return events + last, report


def plain(protocol: ProtocolName) -> Profile:
    return Profile(name="plain", command=("program",), protocol=protocol)
