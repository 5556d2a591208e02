"""The rulebook in the store, and everything else that decides who must approve a task."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Raw, Struct, structs

from ade.accounts.model import SYSTEM, InvalidAccount, UnknownAccount, normal_id
from ade.accounts.users import get_user, load_directory
from ade.approvals.decisions import code_change_since
from ade.approvals.delegations import load_delegations
from ade.approvals.digest import plain_json, read_preview, resources_of
from ade.approvals.errors import UnknownRulebook
from ade.approvals.model import GateState
from ade.approvals.review_requests import ApprovalRequirement, ReviewerDirectory, inheriting, review_of, writers_of
from ade.approvals.risk import MOST_LISTED, Risk, RiskFacts, RiskLevel, RiskResource
from ade.approvals.risk import assess as assess_risk
from ade.approvals.rulebook import (
    USUAL,
    Rulebook,
    SelectedPolicy,
    TaskFacts,
    criticalities_of,
    facts_of,
    policy_for,
)
from ade.approvals.rulebook_document import digested, read_rulebook
from ade.approvals.usage import ApprovalUsage, RecentUse
from ade.errors import LockNotPermitted, StaleWrite
from ade.events.model import Event
from ade.locks.model import LockRule, not_admitted, rules_for
from ade.settings import runtime as settings_runtime
from ade.settings.runtime import RuntimeSettings
from ade.stores.ports import Stores
from ade.stores.repository import Repository, StoredRecord
from ade.stores.wakeups import CachedDocument
from ade.tasks.admission import ROLLBACK_SUFFIX
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Task
from ade.tasks.payloads import Payloads

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


class Assessment(Struct, frozen=True):
    """The risk of a task, and the facts behind it. `least` is the risk without what the author declared."""

    facts: TaskFacts
    risk: Risk
    least: Risk


def usage_for(stores: Stores, situation: ApprovalInputs) -> ApprovalUsage:
    """Return the counts of open approvals and recent tasks, none of which is read yet."""
    window_ms = situation.rulebook.risk.window_ms
    return ApprovalUsage(stores, situation.runtime, situation.people.directory, window_ms)


async def registered_definition(stores: Stores, task: Task) -> Definition | None:
    """Return the definition of a task, or of the task that a rollback undoes."""
    name = task.name.removesuffix(ROLLBACK_SUFFIX)
    return next((each for each in await stores.workers.definitions() if each.name == name), None)


async def facts_about(stores: Stores, task: Task, situation: ApprovalInputs, preview: Raw | None = None) -> TaskFacts:
    """Collect the resources and tags of a task from its definition, arguments, and preview, and from its author."""
    arguments: object = None
    if situation.rulebook.resources:
        arguments = plain_json(await Payloads(stores.blobs).load(task.args))
    return facts_of(
        situation.rulebook,
        task.name,
        arguments=arguments,
        definition=await registered_definition(stores, task),
        preview=None if preview is None else read_preview(preview),
        declared=resources_of(task),
        tags=task.tags,
    )


async def assessment_of(
    stores: Stores,
    task: Task,
    situation: ApprovalInputs,
    usage: ApprovalUsage,
    preview: Raw | None = None,
    *,
    enters: bool = False,
) -> Assessment:
    """Assess a task by facts that its author cannot choose; what the author declares can only raise the risk.

    If it `enters` the usage, it counts for the tasks that follow it.
    """
    changes = 0 if preview is None else len(read_preview(preview).changes)
    facts = await facts_about(stores, task, situation, preview)
    resources = _by_criticality(situation, facts)
    recent = await usage.recent(task, resources)
    if enters:
        await usage.enter(task, resources, changes)
    history = await _history(stores, task.name)
    risk = risk_from(situation, facts, history, changes, recent)
    least = risk_from(situation, facts.without_authors(), history, changes, recent)
    return Assessment(facts, risk, least)


async def assessed(stores: Stores, situation: ApprovalInputs, name: str, facts: TaskFacts) -> Risk:
    """Assess a task that is not stored, and so has neither a preview nor recent tasks next to it."""
    return risk_from(situation, facts, await _history(stores, name))


def _by_criticality(situation: ApprovalInputs, facts: TaskFacts) -> list[str]:
    """Return the resources, the most critical first."""
    names = list(facts.resources)
    rated = dict(zip(names, criticalities_of(situation.rulebook, names), strict=True))
    return sorted(names, key=lambda name: -rated[name])


def risk_from(
    situation: ApprovalInputs,
    facts: TaskFacts,
    history: tuple[int, int],
    changes: int = 0,
    recent: Mapping[str, RecentUse] | None = None,
) -> Risk:
    """Return the risk of these facts. `history` is how many tasks of the name completed and failed."""
    rulebook, uses = situation.rulebook, recent or {}
    names = _by_criticality(situation, facts)
    criticalities = criticalities_of(rulebook, names)
    found = [uses.get(name, RecentUse()) for name in names]
    is_unknown = not facts.trusted_resources
    risk = assess_risk(
        RiskFacts(
            criticalities=criticalities,
            changes=changes,
            resources=len(names),
            everywhere=facts.is_everywhere,
            completed=history[0],
            failed=history[1],
            recent_tasks=max((use.tasks for use in found), default=0),
            recent_changes=max((use.changes for use in found), default=0),
            unknown=rulebook.unknown_resources if is_unknown else None,
        ),
        situation.runtime.thresholds(),
    )
    listed = tuple(
        RiskResource(name=name, sources=facts.resources[name], criticality=criticality, recent_tasks=use.tasks)
        for name, criticality, use in zip(names, criticalities, found, strict=True)
    )
    return structs.replace(risk, resources=listed[:MOST_LISTED], is_unknown=is_unknown)


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
    usage: ApprovalUsage,
    *,
    preview: Raw | None = None,
    required: Sequence[str] = (),
    chosen: Sequence[str] = (),
    reason: str = "",
    step: str = "",
    about: object = None,
) -> ApprovalRequirement:
    """Determine who must approve this task, and enter it into the usage. `required` are policies that guard rules
    demand, `chosen` those that a run asks for in addition to its author's. Raises InvalidSubject, and InvalidPolicy for
    a policy that does not exist."""
    found = await assessment_of(stores, task, situation, usage, preview, enters=True)
    risk, subject = found.risk, found.facts.subject(task.name, found.risk.level, task.id)
    review = review_of(task)
    by_rules = (*review.required, *required, *((USUAL,) if review.has_preview else ()))
    selected = policy_for(
        situation.rulebook,
        subject,
        risk,
        tuple(dict.fromkeys(by_rules)),
        situation.runtime.timeouts(),
        chosen=tuple(dict.fromkeys((*review.policies, *chosen))),
        least=found.least,
    )
    code = await _registered_code(stores, task.name)
    return ApprovalRequirement(
        policy=selected.policy,
        policies=selected.ids,
        required=selected.required,
        subject=subject,
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


async def written_in_run(stores: Stores, task_id: str, tasks: Sequence[Task]) -> list[Task]:
    """Return tasks that a run of this task enqueues on their own, not as children: the writers of all the tasks that
    it descends from cannot approve them either."""
    [origin] = await stores.tasks.get([task_id])
    if origin is None:
        return list(tasks)
    above = await _writers_above(stores, origin)
    return [task if task.parent_id == task_id else inheriting(task, origin.author_id, above) for task in tasks]


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
    """Whether it can no longer pass automatically: reviewers were asked about it, whatever was edited since, or it was
    stale so often that it would be previewed without end."""
    review = review_of(task)
    stale = [gate for gate in review.gates if gate.generation == task.generation and gate.state is GateState.STALE]
    return review.was_for_people or len(stale) >= _MOST_STALE


def _passes_by_itself(chosen: SelectedPolicy, risk: Risk, runtime: RuntimeSettings) -> bool:
    """Whether the policy and the feature flag both allow automatic approval. High risks never pass."""
    if chosen.auto_approve is None or not runtime.is_on("auto_approve_low_risk"):
        return False
    return risk.level.rank <= chosen.auto_approve.rank and risk.level.rank < RiskLevel.HIGH.rank


T = TypeVar("T")
_TRIES = 200  # every lost race means that another request of the same author was counted


async def counted(
    stores: Stores, situation: ApprovalInputs, step: Callable[[ApprovalUsage], Awaitable[T]], *, tries: int = _TRIES
) -> T:
    """Run a step that enters tasks into the usage, and write that; repeated if another request was faster."""
    for tries_left in reversed(range(tries)):
        usage = usage_for(stores, situation)
        answer = await step(usage)
        try:
            await usage.write()
        except StaleWrite:
            if not tries_left:
                raise
        else:
            return answer
    raise AssertionError("unreachable: the last try returns or raises")
