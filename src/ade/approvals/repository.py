"""The rulebook in the store, and everything else that decides who must approve a task."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import Raw, Struct, structs

from ade.accounts.model import SYSTEM, InvalidAccount, UnknownAccount, normal_id
from ade.accounts.users import get_user, load_directory
from ade.approvals.decisions import code_change_since
from ade.approvals.delegations import load_delegations
from ade.approvals.digest import read_preview, resources_of, subject_of
from ade.approvals.errors import UnknownRulebook
from ade.approvals.model import GateState
from ade.approvals.review_requests import ApprovalRequirement, ReviewerDirectory, review_of, writers_of
from ade.approvals.risk import Risk, RiskFacts, RiskLevel
from ade.approvals.risk import assess as assess_risk
from ade.approvals.rulebook import USUAL, Rulebook, SelectedPolicy, criticalities_of, policy_for
from ade.approvals.rulebook_document import digested, read_rulebook
from ade.errors import LockNotPermitted, StaleWrite
from ade.events.model import Event
from ade.locks.model import LockRule, not_admitted, rules_for
from ade.settings import runtime as settings_runtime
from ade.settings.runtime import RuntimeSettings
from ade.stores.ports import Stores
from ade.stores.repository import Repository, StoredRecord
from ade.stores.wakeups import CachedDocument
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

# The rulebook is replaced as a whole. All versions are kept, and every change is logged.


RULEBOOK_CHANGED, SELF_REVIEW_ALLOWED = "rulebook.changed", "policy.self_review_allowed"
CURRENT = "current"


class RulebookVersion(Struct, frozen=True, kw_only=True):
    """One version of the rulebook, as it was applied."""

    version: int = 0  # 0: none has been applied yet
    rules: dict[str, Any] = {}
    digest: str = ""
    at: int = 0
    by: str | None = None


NEWEST = Repository("rulebook", RulebookVersion)
EDITIONS = Repository("rulebook_version", RulebookVersion)


async def apply(stores: Stores, rulebook: Rulebook, *, actor: str | None, seen: int | None = None) -> Rulebook:
    """Put this rulebook in force. `seen` is the version it is based on; None replaces any version.

    A rulebook equal to the newest one creates no new version. Raises StaleWrite if another one was applied since.
    """
    stored = await NEWEST.get(stores, CURRENT)
    newest = 0 if stored is None else stored.record.version
    if seen is not None and seen != newest:
        raise StaleWrite(f"the rulebook is at version {newest} now, not {seen}; look at it and apply yours again")
    rules, digest = digested(rulebook)
    if stored is not None and stored.record.digest == digest:
        return structs.replace(rulebook, version=newest)
    edition = RulebookVersion(version=newest + 1, rules=rules, digest=digest, at=stores.clock.now(), by=actor)
    await stores.documents.write(
        [
            NEWEST.put(CURRENT, edition, seen=0 if stored is None else stored.version),
            EDITIONS.put(str(edition.version), edition, seen=0),
        ],
        _events(edition, rulebook),
    )
    return structs.replace(rulebook, version=edition.version)


def _events(edition: RulebookVersion, rulebook: Rulebook) -> list[Event]:
    changed: dict[str, object] = {"version": edition.version, "digest": edition.digest}
    events = [Event(type=RULEBOOK_CHANGED, at=edition.at, actor=edition.by, payload=changed)]
    unseparated = [entry.policy.id for entry in rulebook.policies if entry.policy.authors_may_vote]
    if unseparated:
        payload: dict[str, object] = {"version": edition.version, "policies": unseparated}
        events.append(Event(type=SELF_REVIEW_ALLOWED, at=edition.at, actor=edition.by, payload=payload))
    return events


async def load(stores: Stores) -> Rulebook:
    """Load the rulebook in force; an empty one of version 0 if none was ever applied."""
    return await newer_rulebook(stores, None)


async def newest(stores: Stores) -> RulebookVersion:
    """Return the version in force, as it was applied."""
    stored = await NEWEST.get(stores, CURRENT)
    return RulebookVersion() if stored is None else stored.record


async def edition(stores: Stores, version: int) -> RulebookVersion:
    """Return one version. Raises UnknownRulebook."""
    stored = await EDITIONS.get(stores, str(version))
    if stored is None:
        raise UnknownRulebook(f"the rulebook never had a version {version}", advice=UnknownRulebook.usual_advice)
    return stored.record


async def history(stores: Stores) -> list[RulebookVersion]:
    """List every version, newest first."""
    editions = [stored.record for stored in (await EDITIONS.all(stores)).values()]
    return sorted(editions, key=lambda edition: edition.version, reverse=True)


async def newer_rulebook(stores: Stores, known: Rulebook | None) -> Rulebook:
    """Load the rulebook in force; the same object if it has not changed since."""
    stored: StoredRecord[RulebookVersion] | None = await NEWEST.get(stores, CURRENT)
    if stored is None:
        return Rulebook()
    if known is not None and known.version == stored.record.version:
        return known
    return read_rulebook(stored.record.rules, version=stored.record.version)


class RulebookCache(CachedDocument[Rulebook]):
    """A cache of the rulebook in force, for one event loop."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores, newer_rulebook)


async def check_lock_permission(
    stores: Stores, rules: Sequence[LockRule], account: str | None, resources: Sequence[str]
) -> None:
    """Raise LockNotPermitted unless the account may lock all of these. Reads nothing if no rule names them."""
    found = rules_for(rules, resources)
    if not found or account == SYSTEM:
        return
    roles = frozenset[str]()
    with suppress(UnknownAccount, InvalidAccount):
        account = None if account is None else normal_id(account)
        if account is not None and any(rule.roles for _, rule in found):
            user = await get_user(stores, account)
            roles = user.roles if user.is_active else roles
    refused = not_admitted(found, account, roles)
    if refused is not None:
        who = "a request without an account" if account is None else account
        raise LockNotPermitted(f"{who} may not lock {refused}: the rulebook lists who may, under [[locks]]")


_MOST_STALE = 5


class ApprovalInputs(Struct, frozen=True):
    """The rulebook, run-time settings, accounts, and delegations that decide an approval."""

    rulebook: Rulebook
    runtime: RuntimeSettings
    people: ReviewerDirectory


async def load_people(stores: Stores) -> ReviewerDirectory:
    """Load accounts and delegations, one after the other: a read-only store works without an event loop."""
    directory, delegations = await load_directory(stores), await load_delegations(stores)
    return ReviewerDirectory(directory, tuple(delegations))


async def load_situation(stores: Stores) -> ApprovalInputs:
    """Load everything that decides an approval."""
    return ApprovalInputs(await load(stores), await settings_runtime.load(stores), await load_people(stores))


async def risk_of(stores: Stores, task: Task, situation: ApprovalInputs, preview: Raw | None = None) -> Risk:
    """Assess a task from the store and its preview; its author cannot choose any of these facts."""
    changes = 0 if preview is None else len(read_preview(preview).changes)
    return await assessed(stores, situation, task.name, resources_of(task), changes)


async def assessed(
    stores: Stores, situation: ApprovalInputs, name: str, resources: Sequence[str], changes: int = 0
) -> Risk:
    """Assess the risk by name and resources. Only a preview knows how much would change."""
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
    """Whether it names a whole resource type and not one resource."""
    _, colon, rest = resource.partition(":")
    return not colon or not rest or "*" in rest


async def _history(stores: Stores, name: str) -> tuple[int, int]:
    """Return how many tasks of this name have completed and failed."""
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
    required: Sequence[str] = (),
    chosen: Sequence[str] = (),
    reason: str = "",
    step: str = "",
    about: object = None,
) -> ApprovalRequirement:
    """Determine who must approve this task. `required` are policies that guard rules demand, `chosen` those that a run
    asks for in addition to its author's. Raises InvalidSubject, and InvalidPolicy for a policy that does not exist."""
    risk = await risk_of(stores, task, situation, preview)
    review = review_of(task)
    by_rules = (*review.required, *required, *((USUAL,) if review.has_preview else ()))
    selected = policy_for(
        situation.rulebook,
        subject_of(task, risk.level),
        risk,
        tuple(dict.fromkeys(by_rules)),
        situation.runtime.timeouts(),
        chosen=tuple(dict.fromkeys((*review.policies, *chosen))),
    )
    code = await _registered_code(stores, task.name)
    return ApprovalRequirement(
        policy=selected.policy,
        policies=selected.ids,
        required=selected.required,
        risk=risk,
        is_automatic=not step and not _is_for_people(task) and _passes_by_itself(selected, risk, situation.runtime),
        in_batch=selected.high_risk_in_batch or risk.level.rank < RiskLevel.HIGH.rank,
        reason=reason if step else code_change_since(task, code) or reason,
        step=step,
        about=about,
        code=code,
        inherited=await _writers_above(stores, task),
    )


async def _registered_code(stores: Stores, name: str) -> str:
    """Return the version of a task's code by the newest registration; empty if no worker has registered any."""
    return next((each.version for each in await stores.workers.definitions() if each.name == name), "")


async def _writers_above(stores: Stores, task: Task) -> frozenset[str]:
    """Return who wrote the tasks that this one descends from: they cannot approve what their tasks enqueue."""
    writers, seen = set[str](), {task.id}
    while task.parent_id is not None and task.parent_id not in seen:
        [parent] = await stores.tasks.get([task.parent_id])
        if parent is None:
            break
        writers |= writers_of(parent)
        seen.add(parent.id)
        task = parent
    return frozenset(writers)


def _is_for_people(task: Task) -> bool:
    """Whether it can no longer pass automatically: reviewers were asked about this generation, an approval was revoked,
    or it was stale so often that it would be previewed without end."""
    gates = [gate for gate in task.review.gates if gate.generation == task.generation] if task.review else []
    by_people = [gate for gate in gates if not gate.is_automatic and gate.state is not GateState.SUPERSEDED]
    was_revoked = any(gate.state is GateState.REVOKED for gate in gates)
    return bool(by_people) or was_revoked or sum(gate.state is GateState.STALE for gate in gates) >= _MOST_STALE


def _passes_by_itself(chosen: SelectedPolicy, risk: Risk, runtime: RuntimeSettings) -> bool:
    """Whether the policy and the feature flag both allow automatic approval. High risks never pass."""
    if chosen.auto_approve is None or not runtime.is_on("auto_approve_low_risk"):
        return False
    return risk.level.rank <= chosen.auto_approve.rank and risk.level.rank < RiskLevel.HIGH.rank
