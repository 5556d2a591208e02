"""What is kept of an agent's run with its task: while it goes on, when it has failed, and when it is done."""

import msgspec
from msgspec import Raw, Struct

from ade.core.agent_runs.events import Spent, ToolCalled

SHOWN_TOOL_CALLS = 20


class AgentProgress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task's progress. It outlives a failed attempt: the next one goes on in the same session and budget."""

    subagent_type: str
    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    url: str | None = None  # where people can look at the agent
    tokens: int | None = None  # of this attempt, as the next two
    cost_usd: float | None = None
    turns: int | None = None
    tool_calls: tuple[ToolCalled, ...] = ()  # the newest
    tool_call_count: int = 0
    said: str = ""  # the newest text, cut
    output_file: str | None = None  # the transcript, on the machine of the worker
    earlier: Spent = Spent()  # what earlier attempts and programs have spent
    session_tokens: int | None = None  # of the whole session, where its program counts that
    fell_back: bool = False  # an earlier attempt or this one took another model
    is_deferred: bool = False  # it waits in its session for leave to use a tool


class AgentResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task's result."""

    report: str
    subagent_type: str
    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    url: str | None = None
    tokens: int | None = None  # of all attempts, as the next two
    cost_usd: float | None = None
    turns: int | None = None
    session_tokens: int | None = None  # of the whole session, where its program counts that
    tool_calls: int = 0  # how many
    duration_ms: int = 0
    output_file: str | None = None
    exit_code: int = 0


_progress = msgspec.json.Decoder(AgentProgress)
_result = msgspec.json.Decoder(AgentResult)


def progress_in(raw: Raw | None) -> AgentProgress | None:
    """None if there is none, or what is there was written by something else."""
    try:
        return None if raw is None else _progress.decode(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def result_in(raw: Raw | None) -> AgentResult | None:
    """None if there is none, or what is there was written by something else."""
    try:
        return None if raw is None else _result.decode(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
