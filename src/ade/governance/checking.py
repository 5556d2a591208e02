"""What the rules would say of something that nobody has asked for yet."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ade.core.approvals.candidates import Candidates, candidates
from ade.core.approvals.choosing import Chosen, policy_for
from ade.core.approvals.delegations import Subject
from ade.core.approvals.opening import People
from ade.core.approvals.risk import Risk, level_of
from ade.core.approvals.rulebook import Rulebook
from ade.core.guard import Case, Occasion, Ruling, Verdict
from ade.governance import rulebook as rulebooks
from ade.governance import runtime as runtimes
from ade.governance.approvals.judging import judge
from ade.governance.approvals.situation import Situation, assessed
from ade.governance.approvals.submitting import previews
from ade.governance.directory.users import load_directory
from ade.ports import Stores


class Question(Struct, frozen=True, kw_only=True):
    """Something to do, as far as it is known. Without a score it is assessed from what the store knows."""

    name: str
    tool: str | None = None
    arguments: Mapping[str, object] = {}
    resources: Sequence[str] = ()
    tags: Sequence[str] = ()
    score: float | None = None


class Findings(Struct, frozen=True, kw_only=True):
    """What the guard says on each occasion, how dangerous it is, and who would have to approve it."""

    rulings: Mapping[Occasion, Ruling]
    risk: Risk
    is_assessed: bool  # False: the score was given
    chosen: Chosen
    candidates: Candidates
    has_preview: bool = False  # then people are always asked


async def check(stores: Stores, question: Question, rulebook: Rulebook | None = None) -> Findings:
    """By the rulebook in force, or by another one that is to be tried. Raises InvalidPolicy."""
    rulebook = await rulebooks.load(stores) if rulebook is None else rulebook
    situation = Situation(rulebook, await runtimes.load(stores), People(await load_directory(stores)))
    risk = await _risk(stores, question, situation)
    case = Case(
        name=question.name,
        tool=question.tool,
        arguments=question.arguments,
        resources=question.resources,
        tags=question.tags,
        score=risk.score,
    )
    occasions = (Occasion.ENQUEUE, Occasion.RUN) if question.tool is None else (Occasion.TOOL,)
    rulings = {occasion: await judge(rulebook, case, occasion) for occasion in occasions}
    subject = Subject(
        name=question.name,
        tags=frozenset(question.tags),
        resource_types=frozenset(resource.partition(":")[0] for resource in question.resources),
        level=risk.level,
    )
    demanding = (ruling for ruling in rulings.values() if ruling.verdict is Verdict.DEMAND)
    named = tuple(dict.fromkeys(ruling.policy for ruling in demanding if ruling.policy is not None))
    chosen = policy_for(rulebook, subject, risk, named, situation.runtime.timeouts())
    return Findings(
        rulings=rulings,
        risk=risk,
        is_assessed=question.score is None,
        chosen=chosen,
        has_preview=await previews(stores, question.name),
        candidates=candidates(chosen.policy, situation.people.directory),
    )


async def _risk(stores: Stores, question: Question, situation: Situation) -> Risk:
    if question.score is None:
        return await assessed(stores, situation, question.name, question.resources)
    level = level_of(question.score, situation.runtime.thresholds())
    return Risk(score=question.score, level=level, criticality=0, magnitude=0, blast_radius=0, failure_rate=0)
