"""Gates in the middle of a run: steps that people agree to, and tools that the guard may ask them about."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from ade.core.approvals.records import AFTER_THE_FACT, MOST_STEPS_ASKED
from ade.core.approvals.refusals import Denied
from ade.core.approvals.running import asked_anew, may_go_on, step_gate
from ade.core.approvals.subjects import resources_of
from ade.core.control import Leave
from ade.core.errors import InvalidTask
from ade.core.guard import Case, Occasion, Verdict
from ade.core.outcome import Withheld
from ade.core.records import MaybeRaw, Task
from ade.governance.approvals.guarding import tell_denied
from ade.governance.approvals.judging import judge
from ade.governance.approvals.situation import Situation, demanded, load_situation
from ade.ports import Stores

_LARGEST_STEP = 256 * 1024  # bytes that people can be shown


class Step(Struct, frozen=True, kw_only=True):
    """What a run wants to do, and must not without people if they or the guard say so."""

    step: str
    about: Raw
    policies: tuple[str, ...] = ()
    reason: str = ""
    is_tool: bool = False  # then the guard decides whether people must agree at all
    judged: MaybeRaw = None  # what the guard looks at, if people are shown something else


async def hold(stores: Stores, task: Task, wanted: Step) -> Withheld | None:
    """None if the run may go on; else how it ends and waits, whatever it says. Raises Denied, InvalidTask."""
    if len(wanted.about) > _LARGEST_STEP:
        raise InvalidTask(f"a step can be about at most {_LARGEST_STEP:,} bytes, not {len(wanted.about):,}")
    if not wanted.is_tool and (wanted.step == AFTER_THE_FACT or wanted.step.startswith("tool ")):
        raise InvalidTask(f"{wanted.step!r} is a name of ADE's own; call the step otherwise")
    about = msgspec.json.decode(wanted.about)
    situation = await load_situation(stores)
    named, reason, step = wanted.policies, wanted.reason, wanted.step
    if wanted.is_tool:
        ruling = await _ruled_on_tool(stores, task, situation, wanted)
        if ruling is None:
            return None
        named, reason = (*named, *ruling[0]), ruling[1]
    if _have_agreed(stores, task, step, about, named, situation):
        return None
    if task.review is not None and len(task.review.gates) > MOST_STEPS_ASKED:
        raise InvalidTask(f"a task can ask people about at most {MOST_STEPS_ASKED} steps; ask about several at once")
    demand = await demanded(
        stores, task, situation, preview=task.preview, named=named, reason=reason, step=step, about=about
    )
    return asked_anew(task, demand, situation.people, now=stores.clock.now())


async def look(stores: Stores, task: Task, tool: str, about: Raw, judged: Raw | None) -> Leave:
    """Whether a tool may be used like this by now. Raises Denied."""
    situation = await load_situation(stores)
    wanted = Step(step=f"tool {tool}", about=about, is_tool=True, judged=judged)
    ruling = await _ruled_on_tool(stores, task, situation, wanted)
    if ruling is None:
        return Leave.FREE
    have_agreed = _have_agreed(stores, task, wanted.step, msgspec.json.decode(about), ruling[0], situation)
    return Leave.GRANTED if have_agreed else Leave.NEEDED


def _have_agreed(
    stores: Stores, task: Task, step: str, about: object, policies: Sequence[str], situation: Situation
) -> bool:
    gate, now = step_gate(task, step, about), stores.clock.now()
    is_enough = gate is not None and set(policies) <= {*gate.policies}  # the guard may demand more by now
    return gate is not None and is_enough and may_go_on(task, gate, situation.people.directory, now=now)


async def _ruled_on_tool(
    stores: Stores, task: Task, situation: Situation, wanted: Step
) -> tuple[tuple[str, ...], str] | None:
    """None where the call is allowed; else which policy it needs and why."""
    tool = wanted.step.removeprefix("tool ")
    arguments = msgspec.json.decode(wanted.about if wanted.judged is None else wanted.judged)
    case = Case(name=task.name, tool=tool, arguments=arguments, resources=resources_of(task), tags=task.tags)
    ruling = await judge(situation.rulebook, case, Occasion.TOOL)
    if ruling.verdict is Verdict.ALLOW:
        return None
    if ruling.verdict is Verdict.DENY:
        await tell_denied(stores, task, ruling, Occasion.TOOL, tool)
        raise Denied(f"the tool {tool} must not be used like this: {ruling.reason}")
    return (ruling.policy,) if ruling.policy else (), ruling.reason
