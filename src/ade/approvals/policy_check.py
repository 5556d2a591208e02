"""Checks of a hypothetical task against the rules: what the guard says, its risk, and who would have to approve."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ade.accounts.users import load_directory
from ade.approvals.gates import Candidates, candidates
from ade.approvals.guard import GuardCase, GuardOccasion, GuardRuling
from ade.approvals.repository import ApprovalInputs, assessed, load
from ade.approvals.review_requests import ReviewerDirectory
from ade.approvals.risk import Risk, level_of
from ade.approvals.rulebook import Rulebook, SelectedPolicy, TaskFacts, facts_of, policies_of, policy_for
from ade.approvals.submission import apply_guard, previews
from ade.settings import runtime
from ade.stores.ports import Stores


class PolicyCheckRequest(Struct, frozen=True, kw_only=True):
    """A task or tool call to check, as far as it is known. Without a score, its risk is assessed from stored data."""

    name: str
    tool: str | None = None
    arguments: Mapping[str, object] = {}
    resources: Sequence[str] = ()
    tags: Sequence[str] = ()
    score: float | None = None


class Findings(Struct, frozen=True, kw_only=True):
    """The ruling of the guard on each occasion, the risk, and who would have to approve."""

    rulings: Mapping[GuardOccasion, GuardRuling]
    risk: Risk
    is_assessed: bool  # False: the score was given
    chosen: SelectedPolicy
    candidates: Candidates
    has_preview: bool = False  # then approval is always requested


async def check(stores: Stores, question: PolicyCheckRequest, rulebook: Rulebook | None = None) -> Findings:
    """Check by the rulebook in force, or by another one on trial. Raises InvalidPolicy."""
    rulebook = await load(stores) if rulebook is None else rulebook
    situation = ApprovalInputs(rulebook, await runtime.load(stores), ReviewerDirectory(await load_directory(stores)))
    definitions = await stores.workers.definitions()
    definition = next((each for each in definitions if each.name == question.name), None)
    facts = facts_of(
        rulebook,
        question.name,
        arguments=question.arguments,
        definition=definition,
        declared=question.resources,
        tags=question.tags,
    )
    risk, least = await _risks(stores, question, situation, facts)
    case = GuardCase(
        name=question.name,
        tool=question.tool,
        arguments=question.arguments,
        schema=None if definition is None or question.tool is not None else definition.schema,
        resources=tuple(facts.resources),
        tags=facts.tags,
        score=risk.score,
        trusted_resources=facts.trusted_resources,
        trusted_tags=facts.trusted_tags,
        trusted_score=least.score,
    )
    occasions = (GuardOccasion.ENQUEUE, GuardOccasion.RUN) if question.tool is None else (GuardOccasion.TOOL,)
    rulings = {occasion: await apply_guard(rulebook, case, occasion) for occasion in occasions}
    required = tuple(dict.fromkeys(policy for ruling in rulings.values() for policy in policies_of(ruling)))
    subject = facts.subject(question.name, risk.level)
    chosen = policy_for(rulebook, subject, risk, required, situation.runtime.timeouts(), least=least)
    return Findings(
        rulings=rulings,
        risk=risk,
        is_assessed=question.score is None,
        chosen=chosen,
        has_preview=await previews(stores, question.name),
        candidates=candidates(chosen.policy, situation.people.directory),
    )


async def _risks(
    stores: Stores, question: PolicyCheckRequest, situation: ApprovalInputs, facts: TaskFacts
) -> tuple[Risk, Risk]:
    """Return the risk, and the risk without what the author declares."""
    if question.score is None:
        least = await assessed(stores, situation, question.name, facts.without_authors())
        return await assessed(stores, situation, question.name, facts), least
    level = level_of(question.score, situation.runtime.thresholds())
    risk = Risk(score=question.score, level=level, criticality=0, magnitude=0, blast_radius=0, failure_rate=0)
    return risk, risk
