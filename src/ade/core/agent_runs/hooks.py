"""What agents' hooks ask before they use a tool, and how each program wants to be answered."""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Any, NamedTuple

from ade.core.control import Leave
from ade.core.errors import InvalidArguments

LINE_VARIABLE = "ADE_HOOK_LINE"  # of an agent's environment: where its hooks ask
LONGEST_CALL = 1024 * 1024
_NEEDED = "people must agree to this; the run ends here and goes on in its session when they have"


class Answer(StrEnum):
    PASS = auto()  # no opinion: the agent's own rules decide
    ALLOW = auto()
    DENY = auto()
    DEFER = auto()  # the agent ends, and asks again when its session goes on
    ASK = auto()  # whoever sits in front of it


class Ruling(NamedTuple):
    answer: Answer
    reason: str = ""


class HookedProgram(StrEnum):
    CLAUDE = auto()
    CODEX = auto()
    GEMINI = auto()


class ToolAsked(NamedTuple):
    """What a hook is about."""

    program: HookedProgram
    tool: str
    arguments: dict[str, Any]
    id: str | None


class Reply(NamedTuple):
    """What a hook prints and how it exits."""

    exit_code: int
    stdout: dict[str, Any] | None = None
    stderr: str = ""


def read_asked(given: Mapping[str, Any], program: HookedProgram | None = None) -> ToolAsked:
    """What a program told its hook by stdin. Raises InvalidArguments."""
    tool, arguments = given.get("tool_name"), given.get("tool_input")
    if not isinstance(tool, str) or not tool or not isinstance(arguments, dict):
        raise InvalidArguments("a hook is told tool_name, a text, and tool_input, an object; this is something else")
    call_id = given.get("tool_use_id")
    return ToolAsked(program or _guessed(given), tool, arguments, call_id if isinstance(call_id, str) else None)


def _guessed(given: Mapping[str, Any]) -> HookedProgram:
    if given.get("hook_event_name") == "BeforeTool":
        return HookedProgram.GEMINI
    return HookedProgram.CODEX if "turn_id" in given else HookedProgram.CLAUDE


def answer_to(leave: Leave, *, can_defer: bool) -> Ruling:
    """Within a run of ADE's."""
    match leave:
        case Leave.FREE:
            return Ruling(Answer.PASS)
        case Leave.GRANTED:
            return Ruling(Answer.ALLOW, "approved by people")
        case Leave.NEEDED:
            return Ruling(Answer.DEFER if can_defer else Answer.DENY, _NEEDED)


def reply_of(program: HookedProgram, ruling: Ruling) -> Reply:
    """In the words of the program. Where it has none for an answer, it gets the next stricter one."""
    if ruling.answer is Answer.PASS:
        return Reply(0)
    if program is HookedProgram.CLAUDE:
        told = {"hookEventName": "PreToolUse", "permissionDecision": str(ruling.answer)}
        return Reply(0, {"hookSpecificOutput": {**told, "permissionDecisionReason": ruling.reason}})
    if ruling.answer is Answer.ALLOW:  # Codex knows no bare allow: silence is one
        return Reply(0) if program is HookedProgram.CODEX else Reply(0, {"decision": "allow", "reason": ruling.reason})
    return Reply(2, None, ruling.reason or "not allowed")
