"""Everything that decides who must approve what, as the store has it now."""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw, Struct, structs

from ade.accounts.users import load_directory
from ade.approvals.delegations import load_delegations
from ade.approvals.digest import read_preview, resources_of, subject_of
from ade.approvals.errors import UnknownRulebook
from ade.approvals.model import GateState
from ade.approvals.review_requests import ApprovalRequirement, ReviewerDirectory
from ade.approvals.risk import Risk, RiskFacts, RiskLevel
from ade.approvals.risk import assess as assess_risk
from ade.approvals.rulebook import Rulebook, SelectedPolicy, criticalities_of, policy_for
from ade.errors import StaleWrite
from ade.events.model import Event
from ade.settings import runtime as settings_runtime
from ade.settings.runtime import RuntimeSettings
from ade.stores.ports import Stores
from ade.stores.repository import CachedDocument, Repository, StoredRecord
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

# The rulebook in the store: applied as a whole, in versions that are all kept, and told of in the log.


RULEBOOK_CHANGED, SELF_REVIEW_ALLOWED = "rulebook.changed", "policy.self_review_allowed"
CURRENT = "current"


class RulebookVersion(Struct, frozen=True, kw_only=True):
    """One version, as it was applied."""

    version: int = 0  # 0: nobody has applied one yet
    rules: dict[str, Any] = {}
    digest: str = ""
    at: int = 0
    by: str | None = None


NEWEST = Repository("rulebook", RulebookVersion)
EDITIONS = Repository("rulebook_version", RulebookVersion)


async def apply(stores: Stores, rulebook: Rulebook, *, actor: str | None, seen: int | None = None) -> Rulebook:
    """Put this rulebook in force. `seen` is the version it was made from; None: whichever there is.

    One that says the same as the newest makes no new version. Raises StaleWrite when another one was applied since.
    """
    from ade.approvals.rulebook_document import digested  # 5 ms, which readers do without

    kept = await NEWEST.get(stores, CURRENT)
    newest = 0 if kept is None else kept.record.version
    if seen is not None and seen != newest:
        raise StaleWrite(f"the rulebook is at version {newest} by now, not {seen}; look at it and apply yours again")
    rules, digest = digested(rulebook)
    if kept is not None and kept.record.digest == digest:
        return structs.replace(rulebook, version=newest)
    edition = RulebookVersion(version=newest + 1, rules=rules, digest=digest, at=stores.clock.now(), by=actor)
    await stores.documents.write(
        [
            NEWEST.put(CURRENT, edition, seen=0 if kept is None else kept.version),
            EDITIONS.put(str(edition.version), edition, seen=0),
        ],
        _events(edition, rulebook),
    )
    return structs.replace(rulebook, version=edition.version)


def _events(edition: RulebookVersion, rulebook: Rulebook) -> list[Event]:
    told: dict[str, object] = {"version": edition.version, "digest": edition.digest}
    events = [Event(type=RULEBOOK_CHANGED, at=edition.at, actor=edition.by, payload=told)]
    unseparated = [entry.policy.id for entry in rulebook.policies if entry.policy.authors_may_vote]
    if unseparated:
        payload: dict[str, object] = {"version": edition.version, "policies": unseparated}
        events.append(Event(type=SELF_REVIEW_ALLOWED, at=edition.at, actor=edition.by, payload=payload))
    return events


async def load(stores: Stores) -> Rulebook:
    """The rulebook in force; an empty one of version 0 where none was ever applied."""
    return await _newer(stores, None)


async def newest(stores: Stores) -> RulebookVersion:
    """The version in force, as it was applied."""
    kept = await NEWEST.get(stores, CURRENT)
    return RulebookVersion() if kept is None else kept.record


async def edition(stores: Stores, version: int) -> RulebookVersion:
    """Raises UnknownRulebook."""
    kept = await EDITIONS.get(stores, str(version))
    if kept is None:
        raise UnknownRulebook(f"the rulebook never had a version {version}", advice=UnknownRulebook.usual_advice)
    return kept.record


async def history(stores: Stores) -> list[RulebookVersion]:
    """Every version there was, the newest first."""
    editions = [kept.record for kept in (await EDITIONS.all(stores)).values()]
    return sorted(editions, key=lambda edition: edition.version, reverse=True)


async def _newer(stores: Stores, known: Rulebook | None) -> Rulebook:
    kept: StoredRecord[RulebookVersion] | None = await NEWEST.get(stores, CURRENT)
    if kept is None:
        return Rulebook()
    if known is not None and known.version == kept.record.version:
        return known
    from ade.approvals.rulebook_document import read_rulebook  # most stores have no rulebook

    return read_rulebook(kept.record.rules, version=kept.record.version)


class RulebookCache(CachedDocument[Rulebook]):
    """The rulebook in force, for one event loop."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores, _newer)


_MOST_STALE = 5


class ApprovalInputs(Struct, frozen=True):
    rulebook: Rulebook
    runtime: RuntimeSettings
    people: ReviewerDirectory


async def load_people(stores: Stores) -> ReviewerDirectory:
    """One after the other: a store that was opened to be looked at lets nobody wait."""
    directory, delegations = await load_directory(stores), await load_delegations(stores)
    return ReviewerDirectory(directory, tuple(delegations))


async def load_situation(stores: Stores) -> ApprovalInputs:
    return ApprovalInputs(await load(stores), await settings_runtime.load(stores), await load_people(stores))


async def risk_of(stores: Stores, task: Task, situation: ApprovalInputs, preview: Raw | None = None) -> Risk:
    """From what the store and the preview know; nothing of it is the author's to choose."""
    changes = 0 if preview is None else len(read_preview(preview).changes)
    return await assessed(stores, situation, task.name, resources_of(task), changes)


async def assessed(
    stores: Stores, situation: ApprovalInputs, name: str, resources: Sequence[str], changes: int = 0
) -> Risk:
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
    situation: ApprovalInputs,
    *,
    preview: Raw | None = None,
    named: Sequence[str] = (),
    reason: str = "",
    step: str = "",
    about: object = None,
) -> ApprovalRequirement:
    """Who must approve this task. Raises InvalidPolicy for a policy that does not exist, InvalidSubject."""
    risk = await risk_of(stores, task, situation, preview)
    own = task.review.policies if task.review is not None else ()
    names, subject = tuple(dict.fromkeys((*own, *named))), subject_of(task, risk.level)
    chosen = policy_for(situation.rulebook, subject, risk, names, situation.runtime.timeouts())
    return ApprovalRequirement(
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


def _passes_by_itself(chosen: SelectedPolicy, risk: Risk, runtime: RuntimeSettings) -> bool:
    """Only where the policy and the flag both say so, and never from a high risk on."""
    if chosen.auto_approve is None or not runtime.is_on("auto_approve_low_risk"):
        return False
    return risk.level.rank <= chosen.auto_approve.rank and risk.level.rank < RiskLevel.HIGH.rank
