"""Submission of tasks: the guard before storing, previews, assessment, and policy checks of hypothetical tasks."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, structs

from ade.accounts.model import SYSTEM
from ade.approvals import decisions
from ade.approvals.decisions import born_held
from ade.approvals.digest import check_size, read_preview
from ade.approvals.errors import AuthorRequired, Denied, InvalidPolicy, InvalidSubject, TaskCannotRun
from ade.approvals.guard import (
    GuardCase,
    GuardOccasion,
    GuardRule,
    GuardRuleSource,
    GuardRulesVerdict,
    GuardRuling,
    rule_on,
)
from ade.approvals.model import NO_AUTHOR, PastRun, Review, StartMode, with_editor
from ade.approvals.repository import (
    ApprovalInputs,
    assessment_of,
    check_lock_permission,
    counted,
    demanded,
    facts_about,
    load,
    load_situation,
    registered_definition,
    usage_for,
)
from ade.approvals.review_requests import lateness, requested_by, review_of, unverified_writers
from ade.approvals.rulebook import (
    MissingAuthor,
    Rulebook,
    TaskFacts,
    passes,
    policies_of,
)
from ade.approvals.usage import ApprovalUsage
from ade.common.patterns import matches_any
from ade.errors import AdeError, StoreError
from ade.events.model import Event
from ade.stores.ports import Stores
from ade.tasks import decisions as tasks_decisions
from ade.tasks.admission import PREVIEW_SUFFIX, ROLLBACK_SUFFIX, is_rollback
from ade.tasks.changes import Change
from ade.tasks.enqueue import enqueue, enqueue_plan, fresh_id
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.payloads import Payloads
from ade.tasks.service import Check, any_version, decide, decide_edit, fresh_kind, get

# The guard reads every word of the arguments. Large ones are judged on a thread, one after the other, so that only
# their own caller waits.


LARGE = 65_536  # bytes
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def apply_guard(rulebook: GuardRuleSource, case: GuardCase, occasion: GuardOccasion) -> GuardRuling:
    """Return the ruling of the first rule that matches. Never raises."""
    if _size(case) <= LARGE:
        return rule_on(rulebook, case, occasion)
    async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        return await asyncio.to_thread(rule_on, rulebook, case, occasion)


def _size(case: GuardCase) -> int:
    if isinstance(case.raw_arguments, Raw):
        return len(case.raw_arguments)
    try:
        return len(msgspec.json.encode(case.raw_arguments))
    except (TypeError, ValueError):  # not JSON, which the guard itself denies
        return 0


# Guard rulings on new tasks: stored, denied, or held for approval.


GUARD_DENIED = "guard.denied"


async def ruled(
    stores: Stores,
    payloads: Payloads,
    task: Task,
    situation: ApprovalInputs,
    occasion: GuardOccasion,
    usage: ApprovalUsage | None = None,
) -> GuardRuling:
    """Return the guard's ruling on a task. `usage` has what was entered for others and is not stored yet."""
    rulebook = situation.rulebook
    if not rulebook.guards(occasion):
        return GuardRuling(verdict=GuardRulesVerdict.ALLOW)
    arguments = await payloads.load(task.args)  # also resolves a reference to a blob
    case = await case_of(stores, task, situation, usage, arguments=arguments)
    ruling = await apply_guard(rulebook, case, occasion)
    if is_rollback(task) and ruling.verdict is not GuardRulesVerdict.DENY:
        case.name = task.name.removesuffix(ROLLBACK_SUFFIX)
        of_task = await apply_guard(rulebook, case, occasion)
        # What freezes a task freezes its rollback.
        return of_task if of_task.verdict is GuardRulesVerdict.DENY else ruling
    return ruling


async def case_of(
    stores: Stores,
    task: Task,
    situation: ApprovalInputs,
    usage: ApprovalUsage | None = None,
    *,
    arguments: Raw | Mapping[str, object],
    tool: str | None = None,
) -> GuardCase:
    """Return the case that the guard judges. Its resources and score are read only if a rule looks at them."""
    rules = situation.rulebook.guard
    facts, found = TaskFacts(), None
    if tool is None and any(rule.from_score is not None for rule in rules):
        found = await assessment_of(stores, task, situation, usage or usage_for(stores, situation), task.preview)
        facts = found.facts
    elif any(rule.tags or rule.resources for rule in rules):
        facts = await facts_about(stores, task, situation, task.preview)
    return GuardCase(
        name=task.name,
        tool=tool,
        arguments=arguments,
        schema=await _schema(stores, task, rules) if tool is None else None,
        resources=tuple(facts.resources),
        tags=facts.tags,
        score=None if found is None else found.risk.score,
        trusted_resources=facts.trusted_resources,
        trusted_tags=facts.trusted_tags,
        trusted_score=None if found is None else found.least.score,
    )


async def _schema(stores: Stores, task: Task, rules: Iterable[GuardRule]) -> Mapping[str, Any] | None:
    """Return the schema of the arguments, read only if a rule for this task looks at arguments."""
    if not any(rule.when or rule.paths for rule in _rules_for(task, rules)):
        return None
    definition = await registered_definition(stores, task)
    return None if definition is None else definition.schema


def _rules_for(task: Task, rules: Iterable[GuardRule]) -> Iterator[GuardRule]:
    """Yield the rules for the name of a task, or of the task that a rollback undoes."""
    names = {task.name, task.name.removesuffix(ROLLBACK_SUFFIX)}
    return (rule for rule in rules if rule.name is None or any(matches_any((rule.name,), name) for name in names))


async def log_denied(
    stores: Stores, task: Task, ruling: GuardRuling, occasion: GuardOccasion, tool: str | None = None
) -> None:
    """Log a denial as an event, even if no task was stored."""
    payload: dict[str, object] = {
        "name": task.name,
        "occasion": occasion,
        "rule": ruling.rule,
        "reason": ruling.reason,
        **({} if tool is None else {"tool": tool}),
        **({} if occasion is GuardOccasion.ENQUEUE else {"task": task.id}),
    }
    event = Event(type=GUARD_DENIED, at=stores.clock.now(), actor=task.author_id, payload=payload)
    await stores.documents.write([], [event])


def demanding(task: Task, rulings: Iterable[GuardRuling]) -> Review:
    """Return the review of a task, with the policies that these rulings demand."""
    review = review_of(task)
    asking = [ruling for ruling in rulings if ruling.verdict is GuardRulesVerdict.DEMAND]
    required = (*review.required, *(policy for ruling in asking for policy in policies_of(ruling)))
    reason = next((ruling.reason for ruling in asking if ruling.reason), review.reason)
    return structs.replace(review, required=tuple(dict.fromkeys(required)), reason=reason)


async def admitted(stores: Stores, payloads: Payloads, tasks: Sequence[Task], rulebook: Rulebook) -> list[Task]:
    """Return what to store instead of these tasks, in the same order; `follow_up` does the rest once they are stored.

    Raises Denied, LockNotPermitted, InvalidPolicy, InvalidSubject, and TooManyApprovals; then none of the tasks must be
    stored.
    """
    if all(passes(task, rulebook) for task in tasks):
        return list(tasks)
    situation = structs.replace(await load_situation(stores), rulebook=rulebook)
    spilled = [
        task if passes(task, rulebook) else structs.replace(task, args=await payloads.spill(task.id, "args", task.args))
        for task in tasks
    ]

    async def step(usage: ApprovalUsage) -> list[Task]:
        stored = [
            task if passes(task, rulebook) else await _admitted(stores, payloads, task, situation, usage)
            for task in spilled
        ]
        # ADE itself makes automatic rollbacks, once for each task; they must not wait for anything else.
        waiting = [task for task in stored if task.status in _WAITING]
        await usage.open_approval(*(task for task in waiting if not is_rollback(task) or not task.depends_on))
        return stored

    return await counted(stores, situation, step)


async def _spilled(payloads: Payloads, task: Task) -> Task:
    return structs.replace(task, args=await payloads.spill(task.id, "args", task.args))


async def _admitted(
    stores: Stores, payloads: Payloads, task: Task, situation: ApprovalInputs, usage: ApprovalUsage
) -> Task:
    await _check_locks(stores, task, situation)
    ruling = await ruled(stores, payloads, task, situation, GuardOccasion.ENQUEUE, usage)
    if ruling.verdict is GuardRulesVerdict.DENY:
        await log_denied(stores, task, ruling, GuardOccasion.ENQUEUE)
        raise Denied(f"{task.name} was not stored: {ruling.reason or 'a guard rule forbids it'} (rule {ruling.rule})")
    later = await ruled(stores, payloads, task, situation, GuardOccasion.RUN, usage)
    review = demanding(task, (ruling, later))
    now = task.created_at or stores.clock.now()
    if review.is_governed:
        check_author(task, situation)
    if review.has_preview:
        return _to_be_assessed(task, structs.replace(review, preview_id=fresh_id(now)))
    if not review.is_governed:
        if any(rule.from_score is not None for rule in _rules_for(task, situation.rulebook.guard)):
            # Such tasks add up, until one of them reaches the score.
            await assessment_of(stores, task, situation, usage, task.preview, enters=True)
        return task
    held = structs.replace(task, review=review)
    demand = await demanded(stores, held, situation, usage, reason=review.reason)
    if demand.is_automatic and (review.start is StartMode.BY_HAND or review.not_before is not None):
        return _to_be_assessed(task, review)  # not queued yet, although no reviewer is asked
    return born_held(held, demand, situation.people, now=now)


async def _check_locks(stores: Stores, task: Task, situation: ApprovalInputs) -> None:
    names = [spec.resource for spec in task.locks]
    await check_lock_permission(stores, situation.rulebook.locks, task.author_id, names)


def check_author(task: Task, situation: ApprovalInputs) -> None:
    """Raise AuthorRequired unless everyone who wrote a governed task has an account, or the rulebook blocks such tasks
    instead. Conflicts of interest are about accounts, so an unknown author could approve the task under another name.

    Before the first account exists, a name cannot be checked. A rollback is stored in any case, and blocked.
    """
    directory = situation.people.directory
    unknown = unverified_writers(task, directory)
    if NO_AUTHOR not in unknown and not any(True for _ in directory.everybody()):
        return
    if not unknown or situation.rulebook.missing_author is MissingAuthor.BLOCK or is_rollback(task):
        return
    why = "it names no author" if NO_AUTHOR in unknown else f"{unknown[0][:100]!r}, who wrote it, is not an account"
    raise AuthorRequired(
        f"{task.name} needs approval, but {why}; name the account of its author", advice=AuthorRequired.usual_advice
    )


def _to_be_assessed(task: Task, review: Review) -> Task:
    return structs.replace(task, status=Status.SUBMITTED, review=review)


_WAITING = frozenset({Status.SUBMITTED, Status.REVIEWING})
_BEFORE_IT_RUNS = (GuardOccasion.ENQUEUE, GuardOccasion.RUN)


async def follow_up(stores: Stores, payloads: Payloads, stored: Sequence[Task]) -> None:
    """Start the previews of stored tasks that need one. If the caller crashes first, a sweep does it."""
    for task in stored:
        if task.status is Status.SUBMITTED:
            await carry_on(stores, payloads, task)


async def submit(stores: Stores, payloads: Payloads, task_id: str, *, actor: str | None = None) -> Task:
    """Freeze a draft and assess it; if its handler has a preview, once a worker has run that. The account that submits
    a draft without an author counts as its author. Raises AuthorRequired, LockNotPermitted, TaskCannotRun, and
    TooManyApprovals."""
    task, situation = await get(stores, task_id), await load_situation(stores)
    written = requested_by(task, actor)
    check_author(written, situation)
    await _check_locks(stores, written, situation)
    if task.status is Status.DRAFT and (why := lateness(task, stores.clock.now())):
        raise TaskCannotRun(f"task {task.id} was not submitted: {why}; edit the draft, then submit it")
    has_preview = review_of(task).has_preview or await previews(stores, task.name)
    await _open_approval(stores, task)
    submitted = await decide(
        stores,
        task_id,
        lambda task, now: decisions.submit(
            task, has_preview=has_preview, preview_id=fresh_id(now) if has_preview else None, now=now, actor=actor
        ),
    )
    return (await carry_on(stores, payloads, submitted))[0]


async def replay(
    stores: Stores,
    payloads: Payloads,
    task_id: str,
    *,
    args: Raw | None = None,
    actor: str | None = None,
    check: Check = any_version,
) -> Task:
    """Run a failed task again with fresh attempts, optionally with corrected arguments. A governed task must be
    approved again first, and not by the account that asks for the replay. Raises Denied if the guard forbids the
    corrected arguments, AuthorRequired, and TooManyApprovals."""
    required: tuple[str, ...] = ()
    task = await get(stores, task_id)
    if args is not None:  # spilled first: the guard reads arguments in the form of a record
        args = await payloads.spill(task_id, fresh_kind(), args)
        required = await _required_for(stores, payloads, structs.replace(task, args=args))
    if required or review_of(task).is_governed:
        written = structs.replace(task, review=with_editor(review_of(task), actor))
        check_author(written, await load_situation(stores))
    if required or review_of(task).is_governed:
        check(task)
        await _open_approval(stores, task)

    def decision(task: Task, now: int, ran: PastRun | None = None) -> Change:
        check(task)
        return tasks_decisions.replay(
            task, now=now, preview_id=fresh_id(now), actor=actor, args=args, ran=ran, required=required
        )

    replayed = await (decide if args is None else decide_edit)(stores, task_id, decision)
    return (await carry_on(stores, payloads, replayed))[0]


async def _open_approval(stores: Stores, task: Task) -> None:
    """Count a task that is about to be submitted among the open approvals of its author. Raises TooManyApprovals."""
    await counted(stores, await load_situation(stores), lambda usage: usage.open_approval(task))


async def _required_for(stores: Stores, payloads: Payloads, task: Task) -> tuple[str, ...]:
    """Return the policies that the guard demands for these arguments. Raises Denied."""
    situation = await load_situation(stores)
    rulings = [await ruled(stores, payloads, task, situation, occasion) for occasion in _BEFORE_IT_RUNS]
    for ruling in rulings:
        if ruling.verdict is GuardRulesVerdict.DENY:
            await log_denied(stores, task, ruling, GuardOccasion.RUN)
            raise Denied(f"{task.name} was not replayed: {ruling.reason} (rule {ruling.rule})")
    return demanding(task, rulings).required


async def previews(stores: Stores, name: str) -> bool:
    """Whether some worker can preview tasks of this name."""
    return any(each.has_preview for each in await stores.workers.definitions() if each.name == name)


async def carry_on(stores: Stores, payloads: Payloads, task: Task) -> tuple[Task, bool]:
    """Take the next step for a submitted task: its preview or, without one, its assessment. Can be repeated.

    Returns the task, and whether there was something to do.
    """
    review, after = review_of(task), task
    if task.status is not Status.SUBMITTED or lateness(task, stores.clock.now()):
        return task, False  # the sweep ends one that is too late
    if not review.has_preview:
        after = await assess(stores, payloads, task.id, None)
        return after, after.version != task.version
    assert review.preview_id is not None  # set together with has_preview
    [made] = await stores.tasks.get([review.preview_id])
    if made is None:
        await enqueue(stores, payloads, [await preview_task(payloads, task)])
        return task, True
    if made.is_final and made.status is not Status.COMPLETED:
        after = await send_back(stores, task.id, review.preview_id, _why_not(made))
    elif made.result is not None:  # by a worker that only reports results
        after = await assess(stores, payloads, task.id, await payloads.load(made.result), preview_id=made.id)
    return after, after.version != task.version


def _why_not(preview: Task) -> str:
    if preview.error is not None:
        return f"the preview failed: {preview.error.type}: {preview.error.message}"[:2_000]
    return f"the preview did not complete: it is {preview.status}"


async def preview_task(payloads: Payloads, task: Task) -> Task:
    """Return the task that previews a submitted task."""
    preview_id = review_of(task).preview_id
    assert preview_id is not None
    return Task(
        id=preview_id,
        name=f"{task.name}{PREVIEW_SUFFIX}",
        queue=task.queue,
        args=await payloads.load(task.args),
        priority=task.priority,
        timeout_ms=task.timeout_ms,
        parent_id=task.id,
        needs=task.needs,
        source=SYSTEM,
        author_id=task.author_id,
        idempotency_key=f"preview:{preview_id}",
        description=f"preview of {task.id}",
    )


async def send_back(stores: Stores, task_id: str, preview_id: str | None, *errors: str) -> Task:
    """Return a task to its author, with the errors. Has no effect if the task has moved on."""

    def decision(task: Task, now: int) -> Change | None:
        if task.status is not Status.SUBMITTED or review_of(task).preview_id != preview_id:
            return None
        return decisions.send_back(task, errors, now=now)

    return await decide(stores, task_id, decision)


async def assess(
    stores: Stores, payloads: Payloads, task_id: str, preview: Raw | None, *, preview_id: str | None = None
) -> Task:
    """Score a submitted task and open its gate. Has no effect if the task has moved on."""
    task = await get(stores, task_id)
    situation = await load_situation(stores)
    try:
        if preview is not None:
            check_size(preview)
            if errors := read_preview(preview).errors:
                return await send_back(stores, task_id, preview_id, *errors)
        previewed_task = structs.replace(task, preview=preview)
        rulings = [await ruled(stores, payloads, previewed_task, situation, occasion) for occasion in _BEFORE_IT_RUNS]
        for ruling in rulings:
            if ruling.verdict is GuardRulesVerdict.DENY:
                await log_denied(stores, task, ruling, GuardOccasion.RUN)
                return await send_back(stores, task_id, preview_id, f"a guard rule forbids it: {ruling.reason}")
        review = demanding(task, rulings)
        demand = await counted(
            stores,
            situation,
            lambda usage: demanded(
                stores, task, situation, usage, preview=preview, required=review.required, reason=review.reason
            ),
        )

        def decision(now_there: Task, now: int) -> Change | None:
            is_same = (review_of(now_there).preview_id, now_there.submitted_at) == (preview_id, task.submitted_at)
            if now_there.status is not Status.SUBMITTED or not is_same or lateness(now_there, now):
                return None
            return decisions.assess(now_there, preview, demand, situation.people, now=now)

        return await decide(stores, task_id, decision)
    except (InvalidSubject, InvalidPolicy) as error:
        return await send_back(stores, task_id, preview_id, error.detail)


async def previewed(stores: Stores, preview: Task, result: Raw, payloads: Payloads) -> None:
    """Assess the task whose preview has completed."""
    [parent] = await stores.tasks.get([preview.parent_id or ""])
    if parent is not None:  # of two requests with one idempotency key, the second has no task
        await assess(stores, payloads, parent.id, await payloads.load(result), preview_id=preview.id)


async def sweep_submitted(stores: Stores, payloads: Payloads, tasks: list[Task]) -> int:
    """Continue what a crashed caller left half-way, and return how many tasks moved on."""
    moved = 0
    for task in tasks:
        try:
            moved += (await carry_on(stores, payloads, task))[1]
        except StoreError:
            raise
        except AdeError as error:
            moved += (
                await send_back(stores, task.id, review_of(task).preview_id, error.detail)
            ).version != task.version
    return moved


# Tasks from schedules pass the guard like all others.


async def enqueue_guarded(stores: Stores, payloads: Payloads, tasks: Sequence[Task]) -> list[Task]:
    """Store admitted tasks that the guard allows, or holds. Raises Denied, with none of them stored."""
    return await store_held(stores, payloads, tasks, await load(stores))


async def store_held(stores: Stores, payloads: Payloads, tasks: Sequence[Task], rulebook: Rulebook) -> list[Task]:
    """Store tasks of which some must wait for approval. Raises Denied, with none of them stored."""
    stored = await enqueue_plan(stores, payloads, await admitted(stores, payloads, tasks, rulebook))
    await follow_up(stores, payloads, stored)
    return stored
