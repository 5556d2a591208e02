"""Hold what the processes wrote down against what the store says."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import apsw
from msgspec import Struct

from ade.composition.audit import open_audit
from ade.errors import AuditBroken
from ade.events.audit_copy import copy_events, verify
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from tests.domain import Event, Stores, TaskQuery, open_stores
from tests.faults.campaign.app import FEW, GENEROUS
from tests.faults.campaign.history import Story
from tests.faults.campaign.plan import SQLITE, Plan
from tests.faults.campaign.trails import Acknowledgement, Run, acknowledgements, payments, runs

_PAGE = 2_000


class Check(Struct, frozen=True):
    """What was looked at, how much of it there was, and everything that was wrong."""

    what: str
    looked_at: int
    wrongs: list[str]


class Verdict(Struct, frozen=True):
    checks: list[Check]
    facts: dict[str, int]

    @property
    def holds(self) -> bool:
        return not any(check.wrongs for check in self.checks)


class Evidence(Struct, frozen=True):
    tasks: dict[str, Task]
    stories: dict[str, Story]
    acknowledged: list[Acknowledgement]
    runs: list[Run]
    payments: list[str]


async def judge(plan: Plan) -> Verdict:
    """Read everything and check everything."""
    stores = await open_stores(plan.url, plan.settings())
    try:
        tasks = {task.id: task for task in await _all_tasks(stores)}
        stories, events = await _all_stories(stores)
        invariants = await stores.maintenance.check_invariants()
        audited = await _audit(plan, stores, events)
    finally:
        await stores.close()
    place = plan.place
    evidence = Evidence(tasks, stories, acknowledgements(place), runs(place), payments(place))
    checks = [*checks_of(evidence), Check("invariants of the store", 1, invariants), audited]
    if plan.store == SQLITE:
        checks.append(Check("the database file is whole (PRAGMA integrity_check)", 1, _integrity(plan)))
    return Verdict(checks, facts_of(evidence, events))


def checks_of(evidence: Evidence) -> list[Check]:
    """All that can be found by reading alone."""
    tasks, stories = evidence.tasks, evidence.stories
    enqueued = {line.task_id for line in evidence.acknowledged if line.what == "enqueued"}
    cancelled = {line.task_id for line in evidence.acknowledged if line.what == "cancelled"}
    charges = [task for task in tasks.values() if task.name == "charge"]
    return [
        Check("every acknowledged task exists", len(enqueued), sorted(enqueued - tasks.keys())),
        Check(
            "one task for each idempotency key",
            len(tasks),
            _twice(str(task.idempotency_key) for task in tasks.values()),
        ),
        Check("every request was answered with its own task", len(enqueued), list(_mistaken(evidence))),
        Check("every task is final", len(tasks), [_shown(task) for task in tasks.values() if not task.is_final]),
        Check(
            "one lease at a time, one final event for each generation",
            sum(len(story.claims) for story in stories.values()),
            [wrong for story in stories.values() for wrong in story.wrongs],
        ),
        Check("records say what their events say", len(tasks), list(_contradictions(tasks.values(), stories))),
        Check("no task has run more often than it may", len(tasks), list(_excesses(tasks.values(), stories))),
        Check("tasks with attempts to spare do not die of kills", len(tasks), list(_needless_deaths(tasks.values()))),
        Check(
            "an acknowledged cancellation stays",
            len(cancelled),
            [_shown(tasks[found]) for found in cancelled & tasks.keys() if tasks[found].status is not Status.CANCELLED],
        ),
        Check(
            "nothing ran without a lease, nothing ended without a run", len(evidence.runs), list(_stray_runs(evidence))
        ),
        Check("a side effect under one key happened once at most", len(evidence.payments), _twice(evidence.payments)),
        Check("a completed charge was paid", len(charges), list(_unpaid(charges, set(evidence.payments)))),
    ]


def facts_of(evidence: Evidence, events: int) -> dict[str, int]:
    tasks = evidence.tasks.values()
    statuses = Counter(str(task.status) for task in tasks)
    deaths = Counter(task.error.type for task in tasks if task.status is Status.FAILED and task.error is not None)
    return {
        "tasks": len(evidence.tasks),
        "acknowledged": sum(line.what == "enqueued" for line in evidence.acknowledged),
        "events": events,
        "runs begun": sum(run.what == "began" for run in evidence.runs),
        "claims": sum(len(story.claims) for story in evidence.stories.values()),
        "takeovers": sum(story.takeovers for story in evidence.stories.values()),
        "most attempts of one task": max((story.most_attempts for story in evidence.stories.values()), default=0),
        "replays": sum(story.generation - 1 for story in evidence.stories.values()),
        **{f"tasks {status}": count for status, count in sorted(statuses.items())},
        **{f"dead letters of {kind}": count for kind, count in sorted(deaths.items())},
    }


def _twice(keys: Iterable[str]) -> list[str]:
    return [f"{key}: {count} times" for key, count in Counter(keys).items() if count > 1]


def _mistaken(evidence: Evidence) -> Iterator[str]:
    for line in evidence.acknowledged:
        task = evidence.tasks.get(line.task_id)
        if task is not None and task.idempotency_key != line.key:
            yield f"request {line.key} was answered with {_shown(task)} of request {task.idempotency_key}"
    yield from _twice(line.key for line in evidence.acknowledged if line.what == "enqueued")


def _contradictions(tasks: Iterable[Task], stories: dict[str, Story]) -> Iterator[str]:
    for task in tasks:
        story = stories.get(task.id)
        if story is None:
            yield f"{_shown(task)} has no events"
        elif (story.status, story.generation, story.attempt) != (task.status, task.generation, task.attempt):
            yield f"{_shown(task)}, but its events tell {story.status}, {story.generation}, {story.attempt}"
        elif story.is_final != task.is_final:
            yield f"{_shown(task)} has {story.finals} final events"


def _excesses(tasks: Iterable[Task], stories: dict[str, Story]) -> Iterator[str]:
    for task in tasks:
        most = stories[task.id].most_attempts if task.id in stories else 0
        if most > task.max_attempts:
            yield f"{_shown(task)} ran {most} of {task.max_attempts} times"
        if task.max_attempts != (FEW if task.name == "fragile" else GENEROUS):
            yield f"{_shown(task)} may run {task.max_attempts} times, which nobody asked for"


def _needless_deaths(tasks: Iterable[Task]) -> Iterator[str]:
    """Fragile tasks may become dead letters, and payments that nobody knows the end of; no others."""
    for task in tasks:
        kind = None if task.error is None else task.error.type
        allowed = {"fragile": "WorkerDied", "charge": "EffectUnknown"}.get(task.name)
        if task.status is Status.FAILED and (kind is None or kind != allowed):
            yield f"{_shown(task)} failed with {kind}"


def _stray_runs(evidence: Evidence) -> Iterator[str]:
    lines: dict[str, list[Run]] = defaultdict(list)
    for run in evidence.runs:
        lines[run.run_id].append(run)
    for run_id, written in lines.items():
        run = written[0]
        story = evidence.stories.get(run.task_id)
        if story is None or story.claims.get(run_id) != (run.generation, run.attempt):
            yield f"{run.task_id}: run {run_id} began as attempt {run.attempt} without a claim that says so"
        if [line.what for line in written] not in (["began"], ["began", "ended"]):
            yield f"{run.task_id}: run {run_id} was performed {len(written)} times"
    for story in evidence.stories.values():
        if story.succeeded_by is not None and len(lines[story.succeeded_by]) != 2:
            yield f"{story.task_id} succeeded by run {story.succeeded_by}, which never came to its end"


def _unpaid(charges: Iterable[Task], paid: set[str]) -> Iterator[str]:
    for task in charges:
        if task.status is Status.COMPLETED and task.idempotency_key not in paid:
            yield f"{_shown(task)} was not paid"


def _shown(task: Task) -> str:
    return f"{task.id} ({task.name}, {task.status}, attempt {task.attempt} of generation {task.generation})"


async def _all_tasks(stores: Stores) -> list[Task]:
    found: list[Task] = []
    after: int | None = None
    while True:
        page = await stores.tasks.find(TaskQuery(oldest_first=True, after=after, limit=_PAGE))
        found += page.tasks
        after = page.next
        if after is None:
            return found


async def _all_stories(stores: Stores) -> tuple[dict[str, Story], int]:
    histories: dict[str, list[Event]] = defaultdict(list)
    last = count = 0
    while page := await stores.events.read(last, _PAGE):
        for event in page:
            histories[str(event.task_id)].append(event)
        last, count = page[-1].seq, count + len(page)
    return {task_id: Story(task_id).tell(events) for task_id, events in histories.items()}, count


async def _audit(plan: Plan, stores: Stores, events: int) -> Check:
    """The copy is brought up to date, then walked from its beginning."""
    checked = 0
    async with open_audit(plan.url, plan.audit_url) as copy:
        try:
            while await copy_events(stores.events, copy):
                continue
            async for progress in verify(stores.events, copy):
                checked, _ = progress
        except AuditBroken as error:
            return Check("the audit chain holds", checked, [str(error)])
    wrongs = [] if checked == events else [f"it has {checked} entries, the log has {events}"]
    return Check("the audit chain holds", checked, wrongs)


def _integrity(plan: Plan) -> list[str]:
    connection = apsw.Connection(str(plan.database))
    try:
        answer = [str(row[0]) for row in connection.execute("PRAGMA integrity_check").fetchall()]
    finally:
        connection.close()
    return [] if answer == ["ok"] else answer
