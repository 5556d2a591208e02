"""Everything that decides who must approve what, as the store has it now."""

from collections.abc import Sequence

from msgspec import Raw, Struct

from ade.core.approvals.choosing import Chosen, policy_for
from ade.core.approvals.opening import Demand, People
from ade.core.approvals.records import GateState
from ade.core.approvals.risk import Risk, RiskFacts, RiskLevel
from ade.core.approvals.risk import assess as assess_risk
from ade.core.approvals.rulebook import Rulebook, criticalities_of
from ade.core.approvals.subjects import read_preview, resources_of, subject_of
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.governance import rulebook as rulebooks
from ade.governance import runtime as runtimes
from ade.governance.delegations import load_delegations
from ade.governance.directory.users import load_directory
from ade.governance.runtime import Runtime
from ade.ports import Stores

_MOST_STALE = 5


class Situation(Struct, frozen=True):
    rulebook: Rulebook
    runtime: Runtime
    people: People


async def load_people(stores: Stores) -> People:
    """One after the other: a store that was opened to be looked at lets nobody wait."""
    directory, delegations = await load_directory(stores), await load_delegations(stores)
    return People(directory, tuple(delegations))


async def load_situation(stores: Stores) -> Situation:
    return Situation(await rulebooks.load(stores), await runtimes.load(stores), await load_people(stores))


async def risk_of(stores: Stores, task: Task, situation: Situation, preview: Raw | None = None) -> Risk:
    """From what the store and the preview know; nothing of it is the author's to choose."""
    changes = 0 if preview is None else len(read_preview(preview).changes)
    return await assessed(stores, situation, task.name, resources_of(task), changes)


async def assessed(stores: Stores, situation: Situation, name: str, resources: Sequence[str], changes: int = 0) -> Risk:
    """The risk of something of this name; how much it changes only a preview can tell."""
    completed, failed = await _history(stores, name)
    facts = RiskFacts(
        criticalities=criticalities_of(situation.rulebook, resources),
        changes=changes,
        resources=len(resources),
        everywhere=any(_is_everywhere(resource) for resource in resources),
        completed=completed,
        failed=failed,
    )
    return assess_risk(facts, situation.runtime.thresholds())


def _is_everywhere(resource: str) -> bool:
    """Whether it names a whole kind and not one thing."""
    _, colon, rest = resource.partition(":")
    return not colon or not rest or "*" in rest


async def _history(stores: Stores, name: str) -> tuple[int, int]:
    """How many tasks of this name have completed and failed."""
    counts = {Status.COMPLETED: 0, Status.FAILED: 0}
    for tally in await stores.queues.tallies():
        if tally.name == name and tally.status in counts:
            counts[tally.status] += tally.count
    return counts[Status.COMPLETED], counts[Status.FAILED]


async def demanded(
    stores: Stores,
    task: Task,
    situation: Situation,
    *,
    preview: Raw | None = None,
    named: Sequence[str] = (),
    reason: str = "",
    step: str = "",
    about: object = None,
) -> Demand:
    """Who must approve this task. Raises InvalidPolicy for a policy that does not exist, InvalidSubject."""
    risk = await risk_of(stores, task, situation, preview)
    own = task.review.policies if task.review is not None else ()
    names, subject = tuple(dict.fromkeys((*own, *named))), subject_of(task, risk.level)
    chosen = policy_for(situation.rulebook, subject, risk, names, situation.runtime.timeouts())
    return Demand(
        policy=chosen.policy,
        policies=chosen.ids,
        risk=risk,
        is_automatic=not step and not _is_for_people(task) and _passes_by_itself(chosen, risk, situation.runtime),
        in_batch=chosen.high_risk_in_batch or risk.level.rank < RiskLevel.HIGH.rank,
        reason=reason,
        step=step,
        about=about,
    )


def _is_for_people(task: Task) -> bool:
    """Whether it cannot pass by itself any more: people were asked about this generation of it, or it is stale again
    and again, and would be previewed without end if nobody looked at it."""
    gates = [gate for gate in task.review.gates if gate.generation == task.generation] if task.review else []
    asked = [gate for gate in gates if not gate.is_automatic and gate.state is not GateState.SUPERSEDED]
    taken_back = any(gate.state is GateState.REVOKED for gate in gates)
    return bool(asked) or taken_back or sum(gate.state is GateState.STALE for gate in gates) >= _MOST_STALE


def _passes_by_itself(chosen: Chosen, risk: Risk, runtime: Runtime) -> bool:
    """Only where the policy and the flag both say so, and never from a high risk on."""
    if chosen.auto_approve is None or not runtime.is_on("auto_approve_low_risk"):
        return False
    return risk.level.rank <= chosen.auto_approve.rank and risk.level.rank < RiskLevel.HIGH.rank
