"""How an attempt goes on from an earlier one, and what is left of what was spent. No I/O."""

from typing import Any

import msgspec
from msgspec.structs import replace

from ade.agents.running.files import Transcript
from ade.agents.running.hooks import AskedCall
from ade.agents.running.orders import Order
from ade.core.agent_runs.budgets import TELLS, Budget, Measure, together
from ade.core.agent_runs.command_line import Assignment
from ade.core.agent_runs.events import Spent, ToolCalled
from ade.core.agent_runs.profiles import Profile
from ade.core.agent_runs.results import AgentProgress

_AGREED = (
    "You were stopped before a tool call that people had to agree to. They have agreed: make that call again exactly"
    " as it was, and go on."
)


def begun(profile: Profile, order: Order, transcript: Transcript) -> AgentProgress:
    """An attempt goes on in the session of the one before it, and what that has spent counts."""
    new = AgentProgress(
        subagent_type=profile.name, output_file=str(transcript.path), session_tokens=order.session_tokens
    )
    before = order.earlier
    if before is None:
        return new
    cut_off = Spent(tokens=before.tokens, cost_usd=before.cost_usd, turns=before.turns)
    return replace(
        before,
        output_file=new.output_file,
        earlier=together(before.earlier, cut_off),
        tokens=None,
        cost_usd=None,
        turns=None,
    )


def first_assignment(profile: Profile, order: Order) -> Assignment:
    before, asked = order.earlier, order.assignment
    if before is None:
        return asked
    if before.fell_back:
        asked = replace(asked, model=profile.fallback_model or order.parent_model or asked.model)
    if before.is_deferred:
        asked = going_on(profile, asked)
    return resumed(asked, before)


def going_on(profile: Profile, assignment: Assignment) -> Assignment:
    """The prompt was said already: a program that waits in its session needs none, another must be told to go on."""
    return replace(assignment, prompt="" if profile.can_defer else _AGREED)


def resumed(assignment: Assignment, known: AgentProgress) -> Assignment:
    """The same in the session that is known; where none is, in the one that was asked for."""
    if known.session_id is None and known.conversation_id is None and known.agent_id is None:
        return assignment
    return replace(
        assignment,
        session_id=known.session_id,
        agent_id=known.agent_id,
        conversation_id=known.conversation_id,
    )


def as_printed(call: ToolCalled) -> AskedCall:
    """A call that no hook was asked about. What cannot be read is shown as it is; no rule takes it for harmless."""
    try:
        found = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        found = None
    arguments: dict[str, Any] = found if isinstance(found, dict) else {"input": call.arguments}
    return AskedCall(call.name, arguments, arguments)


def difference(all_of_it: Spent, before: Spent) -> Spent:
    left = {}
    for name in ("tokens", "cost_usd", "turns"):
        value = getattr(all_of_it, name)
        left[name] = None if value is None else value - (getattr(before, name) or 0)
    return Spent(**left)


def unkept(profile: Profile, budget: Budget) -> list[str]:
    """What to say of limits that cannot be kept, because the program does not tell the measure."""
    told = TELLS.get(profile.protocol, frozenset())
    asked = [measure for measure in Measure if getattr(budget, measure.value) is not None]
    return [
        f"[budget] {profile.name} does not tell its {measure.words}: that limit cannot be kept"
        for measure in asked
        if measure not in told
    ]
