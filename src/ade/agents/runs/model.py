"""Data of agent runs: budgets, hook requests and replies, progress and results, and event log entries.

Budgets are checked at every usage report, so that a run is stopped while it is in progress.
"""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ade.agents.profiles import ProtocolName
from ade.agents.protocols.base import ToolCalled, UsageReported
from ade.errors import InvalidArguments
from ade.events.model import Event
from ade.failures import TaskError
from ade.tasks.outcomes import Leave


class BudgetMeasure(StrEnum):
    """What a budget limits."""

    TOKENS = auto()
    COST_USD = auto()
    TURNS = auto()

    @property
    def words(self) -> str:
        return "dollars" if self is BudgetMeasure.COST_USD else self.value


# Measures that each program reports at some point. A plain command reports none.
REPORTED_MEASURES: Mapping[ProtocolName, frozenset[BudgetMeasure]] = {
    ProtocolName.LETTA: frozenset({BudgetMeasure.TOKENS, BudgetMeasure.TURNS}),
    ProtocolName.CLAUDE: frozenset(BudgetMeasure),
    ProtocolName.CODEX: frozenset({BudgetMeasure.TOKENS, BudgetMeasure.TURNS}),
    ProtocolName.GEMINI: frozenset({BudgetMeasure.TOKENS, BudgetMeasure.TURNS}),
    ProtocolName.JSON: frozenset(BudgetMeasure),
}


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The maximum to spend; None is no limit."""

    tokens: int | None = None
    cost_usd: float | None = None
    turns: int | None = None


class BudgetExcess(Struct, frozen=True, kw_only=True):
    """A limit that was exceeded, and whose budget it is."""

    whose: str
    measure: BudgetMeasure
    limit: float
    used: float

    @property
    def message(self) -> str:
        if self.measure is BudgetMeasure.COST_USD:
            return f"the budget of the {self.whose} is ${self.limit:,.2f}, and the run has spent ${self.used:,.2f}"
        unit = self.measure.value
        return f"the budget of the {self.whose} is {self.limit:,.0f} {unit}, and the run has used {self.used:,.0f}"


def excess_of(budgets: Mapping[str, Budget], spent: UsageReported) -> BudgetExcess | None:
    """Return the first exceeded limit. Spending exactly the budget is allowed; an unknown amount exceeds nothing.

    `budgets` maps owners to what is left for this run: {"task": ..., "author": ...}.
    """
    for whose, budget in budgets.items():
        for measure in BudgetMeasure:
            limit, used = getattr(budget, measure.value), getattr(spent, measure.value)
            if limit is not None and used is not None and used > limit:
                return BudgetExcess(whose=whose, measure=measure, limit=limit, used=used)
    return None


def left_of(budget: Budget, *before: UsageReported) -> Budget:
    """Return what is left of a budget after earlier attempts of the task, or other runs of the author."""
    limits = {name: limit for name in Budget.__struct_fields__ if (limit := getattr(budget, name)) is not None}
    return Budget(
        **{name: max(limit - sum(getattr(spent, name) or 0 for spent in before), 0) for name, limit in limits.items()}
    )


def tightest(*budgets: Budget) -> Budget:
    """Return the minimum of each measure, for programs that can limit themselves."""
    limits = {name: [getattr(each, name) for each in budgets] for name in Budget.__struct_fields__}
    return Budget(
        **{name: min((each for each in found if each is not None), default=None) for name, found in limits.items()}
    )


def together(first: UsageReported, second: UsageReported) -> UsageReported:
    """Return the sum of two usages. A measure that neither reports stays unknown."""
    sums = {}
    for name in UsageReported.__struct_fields__:
        known = [value for each in (first, second) if (value := getattr(each, name)) is not None]
        sums[name] = sum(known) if known else None
    return UsageReported(**sums)


def used_up(budgets: Mapping[str, Budget]) -> str | None:
    """Return why nothing can start, because a budget is exhausted. None if all have something left."""
    for whose, budget in budgets.items():
        for measure in BudgetMeasure:
            if getattr(budget, measure.value) == 0:
                return f"the budget of the {whose} is used up: no {measure.words} are left for another run"
    return None


# Requests of agents' hooks before a tool is used, and the reply format of each program.


LINE_VARIABLE = "ADE_HOOK_LINE"  # variable in an agent's environment with its hooks' socket
LONGEST_CALL = 1024 * 1024
_NEEDED = "this requires approval; the run ends here and continues in its session once it is approved"


class HookAnswer(StrEnum):
    """The decision about a tool call."""

    PASS = auto()  # no opinion: the agent's own rules decide
    ALLOW = auto()
    DENY = auto()
    DEFER = auto()  # the agent exits, and asks again when its session is resumed
    ASK = auto()  # the person at the agent's terminal


class HookRuling(NamedTuple):
    """A decision with its reason."""

    answer: HookAnswer
    reason: str = ""


class HookedProgram(StrEnum):
    """A program whose hooks are supported."""

    CLAUDE = auto()
    CODEX = auto()
    GEMINI = auto()


class ToolCallRequest(NamedTuple):
    """The tool call that a hook asks about."""

    program: HookedProgram
    tool: str
    arguments: dict[str, Any]
    id: str | None


class HookReply(NamedTuple):
    """What a hook prints, and its exit code."""

    exit_code: int
    stdout: dict[str, Any] | None = None
    stderr: str = ""


def parse_tool_request(request: Mapping[str, Any], program: HookedProgram | None = None) -> ToolCallRequest:
    """Parse the request that a program sent to its hook on stdin. Raises InvalidArguments."""
    tool, arguments = request.get("tool_name"), request.get("tool_input")
    if not isinstance(tool, str) or not tool or not isinstance(arguments, dict):
        raise InvalidArguments("the input of a hook must have tool_name, a string, and tool_input, an object")
    call_id = request.get("tool_use_id")
    return ToolCallRequest(program or _guessed(request), tool, arguments, call_id if isinstance(call_id, str) else None)


def _guessed(request: Mapping[str, Any]) -> HookedProgram:
    if request.get("hook_event_name") == "BeforeTool":
        return HookedProgram.GEMINI
    return HookedProgram.CODEX if "turn_id" in request else HookedProgram.CLAUDE


def answer_to(leave: Leave, *, can_defer: bool) -> HookRuling:
    """Return the decision within an ADE run."""
    match leave:
        case Leave.FREE:
            return HookRuling(HookAnswer.PASS)
        case Leave.GRANTED:
            return HookRuling(HookAnswer.ALLOW, "approved by people")
        case Leave.NEEDED:
            return HookRuling(HookAnswer.DEFER if can_defer else HookAnswer.DENY, _NEEDED)


def reply_of(program: HookedProgram, ruling: HookRuling) -> HookReply:
    """Return the decision in the program's format. If it has no such decision, the next stricter one is used."""
    if ruling.answer is HookAnswer.PASS:
        return HookReply(0)
    if program is HookedProgram.CLAUDE:
        output = {"hookEventName": "PreToolUse", "permissionDecision": str(ruling.answer)}
        return HookReply(0, {"hookSpecificOutput": {**output, "permissionDecisionReason": ruling.reason}})
    if ruling.answer is HookAnswer.ALLOW:  # Codex has no explicit allow: an empty reply allows the call
        return (
            HookReply(0)
            if program is HookedProgram.CODEX
            else HookReply(0, {"decision": "allow", "reason": ruling.reason})
        )
    return HookReply(2, None, ruling.reason or "not allowed")


# What is stored of an agent run with its task: in progress, failed, and completed.


SHOWN_TOOL_CALLS = 20


class AgentProgress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task's progress. It survives a failed attempt: the next one resumes the same session and budget."""

    subagent_type: str
    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    url: str | None = None  # web page of the agent
    tokens: int | None = None  # of this attempt, as the next two
    cost_usd: float | None = None
    turns: int | None = None
    tool_calls: tuple[ToolCalled, ...] = ()  # the newest
    tool_call_count: int = 0
    said: str = ""  # the newest text, cut
    output_file: str | None = None  # the transcript, on the worker's machine
    earlier: UsageReported = UsageReported()  # spent by earlier attempts and programs
    session_tokens: int | None = None  # of the whole session, if its program counts that
    fell_back: bool = False  # this or an earlier attempt used the fallback model
    is_deferred: bool = False  # it waits in its session for the approval of a tool call
    deferred_call: ToolCalled | None = None  # that call, if no hook checks it again when the agent makes it


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


def current_usage(progress: AgentProgress) -> UsageReported:
    """Return what the current attempt has spent so far."""
    return UsageReported(tokens=progress.tokens, cost_usd=progress.cost_usd, turns=progress.turns)


_progress = msgspec.json.Decoder(AgentProgress)
_result = msgspec.json.Decoder(AgentResult)


def progress_in(raw: Raw | None) -> AgentProgress | None:
    """Decode progress; None if there is none, or it has another format."""
    try:
        return None if raw is None else _progress.decode(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def result_in(raw: Raw | None) -> AgentResult | None:
    """Decode a result; None if there is none, or it has another format."""
    try:
        return None if raw is None else _result.decode(raw)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


# Event log entries of agent runs, in addition to those of their tasks: identity and usage.


AGENT_RUN_BEGAN, AGENT_RUN_ENDED = "agent_run.began", "agent_run.ended"
_WHO = ("session_id", "agent_id", "conversation_id", "model")
_USAGE = ("tokens", "cost_usd", "turns")


def began(progress: AgentProgress, *, task_id: str, run_id: str, at: int, actor: str) -> Event:
    """Return the event for a started run."""
    payload = {"task_id": task_id, "run_id": run_id, "subagent_type": progress.subagent_type, **_known(progress, _WHO)}
    return Event(type=AGENT_RUN_BEGAN, at=at, actor=actor, payload=payload)


def ended(
    progress: AgentProgress,
    outcome: AgentResult | TaskError | None,
    *,
    task_id: str,
    run_id: str,
    at: int,
    actor: str,
) -> Event:
    """Return the event for an ended run. `outcome` is None if it was interrupted: cancelled, timed out, on hold for
    approval, or returned to the queue.
    """
    payload: dict[str, object] = {"task_id": task_id, "run_id": run_id, "subagent_type": progress.subagent_type}
    payload |= _known(progress, _WHO) | _known(progress.earlier, _USAGE)
    payload["tool_calls"] = progress.tool_call_count
    payload["ended"] = "cut short" if outcome is None else "failed" if isinstance(outcome, TaskError) else "succeeded"
    if isinstance(outcome, TaskError):
        payload["error"] = f"{outcome.type}: {outcome.message}"[:500]
    return Event(type=AGENT_RUN_ENDED, at=at, actor=actor, payload=payload)


def _known(record: object, names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name in names if (value := getattr(record, name)) is not None}
