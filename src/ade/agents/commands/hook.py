"""`ade hook`: the command that agents' hooks call before a tool is used. Any error denies the call (exit code 2)."""

import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import click

from ade.agents.runs.model import (
    LINE_VARIABLE,
    LONGEST_CALL,
    HookAnswer,
    HookedProgram,
    HookReply,
    HookRuling,
    ToolCallRequest,
    parse_tool_request,
    reply_of,
)
from ade.cli.command import group

if TYPE_CHECKING:
    from ade.cli.session import Session


_PATIENCE_S = 20.0  # shorter than the programs' own hook timeouts: a hook that times out blocks nothing
_NO = 2  # the exit code that all programs treat as a denial


@group("hook")
def hook() -> None:
    """For the hooks of agents: answer whether a tool may be used."""


@hook.command("pre-tool-use")
@click.option(
    "--for",
    "program",
    type=click.Choice([str(program) for program in HookedProgram]),
    help="The program whose hook this is; detected from the input by default.",
)
def pre_tool_use(session: "Session", program: str | None) -> int:
    """Read a tool call from stdin in the format of a PreToolUse hook, and answer in the program's own format.

    Within a run of ADE, the guard of the run and the approvals of the task decide; elsewhere the guard
    rules of the store do. After an error, the call is denied.
    """
    session.is_here = session.options.url is None and session.options.profile is None
    try:
        received = json.loads(sys.stdin.buffer.read(LONGEST_CALL))
        request = parse_tool_request(received, None if program is None else HookedProgram(program))
        line = os.environ.get(LINE_VARIABLE)
        ruling = _ask(line, request) if line else session.look(_rule(session, request))
        reply = reply_of(request.program, ruling)
    except Exception as error:
        reply = HookReply(_NO, None, f"ade could not check whether this is allowed, so it is denied: {error}")
    if reply.stdout is not None:
        print(json.dumps(reply.stdout))
    if reply.stderr:
        print(reply.stderr, file=sys.stderr)
    return reply.exit_code


def _ask(line: str, request: ToolCallRequest) -> HookRuling:
    """Ask the run that the agent belongs to."""
    call = {"tool": request.tool, "arguments": request.arguments, "id": request.id}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        connection.connect(line)
        connection.sendall(json.dumps(call).encode() + b"\n")
        with connection.makefile("rb") as file:
            received: dict[str, Any] = json.loads(file.readline(LONGEST_CALL))
    return HookRuling(HookAnswer(received["answer"]), str(received["reason"]))


async def _rule(session: "Session", request: ToolCallRequest) -> HookRuling:
    """Decide by the guard rules alone; only the person at the agent's terminal can be asked."""
    from ade.approvals.guard import GuardCase, GuardOccasion, GuardRulesVerdict, rule_on
    from ade.approvals.repository import load

    async with session.stores() as stores:
        rulebook = await load(stores)
    ruling = rule_on(rulebook, GuardCase(name="", tool=request.tool, arguments=request.arguments), GuardOccasion.TOOL)
    answers: dict[GuardRulesVerdict, HookAnswer] = {
        GuardRulesVerdict.ALLOW: HookAnswer.PASS,
        GuardRulesVerdict.DENY: HookAnswer.DENY,
        GuardRulesVerdict.DEMAND: HookAnswer.ASK,
    }
    return HookRuling(answers[ruling.verdict], ruling.reason)
