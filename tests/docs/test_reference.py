"""The reference is complete, and what it says about events, reasons and rooms is what the code does."""

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import Raw, structs

import ade
from ade import ItemKind, NewItem, Status, Task, testing
from ade.agents import registry
from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.inbox import BlockedReason, ClearReason, InboxChange, ReturnReason, events_of, unused
from ade.agents.protocols.base import UsageReported
from ade.agents.runs import model as runs_model
from ade.approvals import repository as approvals_repository
from ade.composition import audit as audit_composition
from ade.events import audit_anchors
from ade.failures import FailureKind, TaskError
from ade.locks import rules as locks_rules
from ade.settings import KNOWN, Settings, _rules, load, runtime, sections
from ade.settings.runtime import FEATURES, SETTINGS
from ade.stores.sqlite.connection import sql
from ade.tasks import admission, decisions, schedules
from ade.tasks.api import queues
from ade.tasks.outcomes import Deferred, Failed, Released, Succeeded
from ade.webhooks.model import TYPES
from docs.generate import DOCS
from docs.generators.approval_events import APPROVAL_EVENTS
from docs.generators.events import EVENTS
from docs.generators.explain import REASONS
from docs.generators.python_api import CLASSES
from docs.generators.settings import variable
from docs.generators.structure import tiers
from docs.generators.stubs import public_members
from tests.architecture.repository import ROOT, SOURCE
from tests.docs.approvals import of_approvals
from tests.docs.people import of_people
from tests.docs.webhooks import of_webhooks
from tests.domain import (
    AgentProgress,
    AgentStatus,
    BatchClaimant,
    Event,
    InboxLimits,
    LockMode,
    Queue,
    Schedule,
    open_stores,
    read_rulebook,
    validate_request,
)
from tests.locks.memory import MemoryLocks

NOW = 1_900_000_000_000
PENDING = Task(id="01900000-0000-7000-8000-000000000001", name="f", parent_id="01900000-0000-7000-8000-000000000002")
RUNNING = structs.replace(
    PENDING, status=Status.RUNNING, attempt=1, run_id="r", worker_id="w", lease_until=NOW, max_attempts=3
)
FAILED = structs.replace(PENDING, status=Status.FAILED)
PAGE = (DOCS / "reference" / "python-api.md").read_text()


def broken(kind: FailureKind) -> Failed:
    return Failed(TaskError(kind=kind, type="Error", message="no luck"))


def decided() -> Iterator[Event]:
    """The events of every decision that some use case can take today."""
    yield admission.creation_event(structs.replace(PENDING, run_after=NOW, depends_on=("x",)))
    changes = [
        decisions.settle(RUNNING, Succeeded(Raw(b"1")), now=NOW, randomness=0.5),
        decisions.settle(RUNNING, broken(FailureKind.RAISED), now=NOW, randomness=0.5),
        decisions.settle(RUNNING, broken(FailureKind.OUT_OF_MEMORY), now=NOW, randomness=0.5),
        decisions.settle(RUNNING, Released("shut down"), now=NOW, randomness=0.5),
        decisions.settle(RUNNING, Deferred(("db:main",), 1_000), now=NOW, randomness=0.5),
        decisions.requeue(PENDING, now=NOW),
        decisions.lose_lease(RUNNING, now=NOW),
        decisions.cancel(RUNNING, "enough", now=NOW),
        decisions.miss_deadline(PENDING, now=NOW),
        decisions.break_chain(PENDING, failed_ids=("x",), now=NOW),
        decisions.replay(FAILED, now=NOW),
        decisions.discard(FAILED, "of no use", now=NOW),
        decisions.edit(structs.replace(PENDING, status=Status.DRAFT), now=NOW, description="better"),
    ]
    for change in (*changes, decisions.reschedule(PENDING, now=NOW, priority=1, run_after=NOW + 1_000)):
        yield from () if change is None else change.events
    yield from lock_events()
    yield from inbox_events()
    yield from agent_run_events()


def agent_run_events() -> Iterator[Event]:
    progress = AgentProgress(
        subagent_type="coder",
        session_id="s",
        agent_id="a",
        conversation_id="c",
        model="m",
        earlier=UsageReported(tokens=1, cost_usd=0.1, turns=1),
    )
    error = TaskError(kind=FailureKind.RAISED, type="AgentReported", message="no")
    yield runs_model.began(progress, task_id="t", run_id="r", at=NOW, actor="w")
    yield runs_model.ended(progress, error, task_id="t", run_id="r", at=NOW, actor="w")


def lock_events() -> list[Event]:
    """Every kind of them, each with everything it may tell."""
    locks = MemoryLocks()

    def asked(name: str, mode: LockMode, wait_ms: int | None = None) -> None:
        request = validate_request(id=name, owner="agent", scope=name, wanted=[("db:main", mode)], purpose="to show")
        locks.do(lambda book: locks_rules.acquire(book, request, wait_ms=wait_ms))

    asked("a", LockMode.SHARED)
    locks.do(lambda book: locks_rules.upgrade(book, "a", "db:main", upgrade_id="up", wait_ms=None))
    asked("b", LockMode.SHARED)
    locks.do(lambda book: locks_rules.downgrade(book, "a", "db:main"))
    locks.do(lambda book: locks_rules.upgrade(book, "a", "db:main", upgrade_id="up", wait_ms=None))
    locks.do(lambda book: locks_rules.release(book, "a"))  # and its wish with it
    asked("c", LockMode.EXCLUSIVE)
    locks.do(lambda book: locks_rules.abort_victim(book, "c", cycle=("b", "c")))
    locks.do(lambda book: locks_rules.force_release(book, "b", reason="stuck", by="ada"))
    return locks.events


def inbox_events() -> Iterator[Event]:
    """One of every kind."""
    new, taker = (
        NewItem(kind=ItemKind.MESSAGE, content="hi"),
        BatchClaimant(lease_id="l", holder="w", lease_ms=9, steady=0),
    )
    limits = InboxLimits(max_items=1, hard_max_items=1)
    one = conversations_rules.enqueue(unused("c"), new, limits=limits, now=NOW)
    out = conversations_rules.take(one.after, taker)
    steps: list[InboxChange[Any]] = [
        one,
        out,
        conversations_rules.enqueue(one.after, new, limits=limits, now=NOW),
        conversations_rules.try_dequeue(one.after, BlockedReason.STREAMING),
        conversations_rules.remove(one.after, "q-1"),
        conversations_rules.clear(one.after, ClearReason.CANCELLED),
        conversations_rules.confirm(out.after, "l"),
        conversations_rules.give_back(out.after, "l", ReturnReason.FAILED),
    ]
    for step in steps:
        yield from events_of("c", step.notices, at=NOW)


def test_every_setting_is_listed_with_a_meaning() -> None:
    text = (DOCS / "reference" / "settings.md").read_text()
    rows = dict(re.findall(r"^\| `([\w.]+)` \|.*\| (\S.*) \|$", text, re.MULTILINE))

    assert list(rows) == list(KNOWN)


def test_the_page_says_which_settings_nothing_uses_yet() -> None:
    text = (DOCS / "reference" / "settings.md").read_text()
    told = re.findall(r"`([\w.]+)`", text.partition("not used by anything yet:")[2].partition(". ")[0])
    source = "".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "settings.py")

    assert told == [name for name in KNOWN if not re.search(rf"\.{name.partition('.')[2]}\b", source)]


def test_the_page_says_which_run_time_settings_nothing_uses_yet() -> None:
    text = (DOCS / "reference" / "run-time-settings.md").read_text()
    told = re.findall(r"`([\w.]+)`", text.partition("Nothing uses these yet:")[2].partition(". ")[0])
    source = "".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "runtime_names.py")

    assert told == [name for name in (*SETTINGS, *FEATURES) if f'"{name}"' not in source]


def test_every_rule_between_settings_is_told() -> None:
    text = " ".join((DOCS / "reference" / "settings.md").read_text().split())
    told = text.partition("These must fit together:")[2].partition(". ")[0]

    assert [name for _, first, _, second, _ in _rules(Settings()) for name in (first, second) if name not in told] == []


def test_a_setting_is_found_in_the_environment_under_the_name_that_is_given() -> None:
    assert load(env={variable("worker.lease_s"): "60"}, files=[]).settings.worker.lease_s == 60


def test_every_public_name_and_every_member_is_in_the_reference() -> None:
    missing = [name for name in (*ade.__all__, *testing.__all__) if f"`{name}`" not in PAGE and f" {name}" not in PAGE]

    assert missing == []
    for shown in CLASSES.values():
        told = {*shown.members, *shown.inner}
        assert public_members(shown.kind) - told == set(), f"show or leave out these of {shown.kind.__name__}"


def test_events_have_the_payloads_that_are_listed() -> None:
    for event in decided():
        told = EVENTS[event.type]
        assert {*told.always} <= event.payload.keys() <= {*told.always, *told.sometimes}, event.type


def test_what_claims_write_is_listed() -> None:
    for name, kind in (("insert_events", "task.claimed"), ("insert_reclaim_events", "task.reclaimed")):
        assert tuple(re.findall(r"'(\w+)', [tc]\.", sql(f"claims.{name}"))) == EVENTS[kind].always


async def ordered() -> list[Event]:
    """The events of what somebody can do to queues, schedules, agents, rules and settings."""
    stores = await open_stores("memory://")
    for change in (queues.pause, queues.resume, partial(queues.limit, max_depth=7)):
        await change(stores, Queue(name="mail"))
    await schedules.put(stores, Schedule(name="nightly", cron="0 3 * * *", task_name="f"))
    for act in (schedules.pause, schedules.resume, schedules.remove):
        await act(stores, "nightly")
    await registry.register(stores, "coder", 3)
    for status in (AgentStatus.DRAINING, AgentStatus.OFFLINE, AgentStatus.ACTIVE):
        await registry.set_status(stores, "coder", status)
    await registry.remove(stores, "coder")
    policy = {"id": "own", "rules": [{"roles": ["reviewer"]}], "authors_may_vote": True}
    await approvals_repository.apply(stores, read_rulebook({"policy": [policy]}), actor="ada")
    await runtime.set_value(stores, "risk.high", 60, actor="ada")
    await runtime.switch(stores, "batch_approvals", False, actor="ada")
    async with audit_composition.open_audit("memory://") as copy:
        await audit_anchors.AnchorJob(stores, copy, sections.EventSettings()).anchor()
    events = await stores.events.read(0, 100)
    await stores.close()
    return events


async def test_events_of_queues_schedules_and_agents_have_the_payloads_that_are_listed() -> None:
    for event in await ordered():
        assert tuple(sorted(event.payload)) == tuple(sorted(EVENTS[event.type].always)), event.type


async def test_events_of_people_and_webhooks_have_the_payloads_that_are_listed() -> None:
    for kind, payloads in (await of_people() | await of_webhooks()).items():
        told = EVENTS[kind]
        assert set.intersection(*payloads) == set(told.always), kind
        assert set.union(*payloads) == {*told.always, *told.sometimes}, kind


async def test_events_of_approvals_have_the_payloads_that_are_listed() -> None:
    for kind, payloads in (await of_approvals()).items():
        if kind in APPROVAL_EVENTS:
            told = EVENTS[kind]
            assert all(payload >= set(told.always) for payload in payloads), kind
            assert set.union(*payloads) <= {*told.always, *told.sometimes}, kind


async def test_every_event_type_was_looked_at() -> None:
    seen = {event.type for event in (*decided(), *await ordered())} | {"task.claimed", "task.reclaimed"}
    seen |= (await of_people()).keys() | (await of_approvals()).keys() | (await of_webhooks()).keys()

    assert EVENTS.keys() == TYPES
    assert seen >= EVENTS.keys()


def test_every_reason_is_listed() -> None:
    modules = ("agents/views.py", "approvals/review_reasons.py", "tasks/explain.py")
    source = "".join((SOURCE / name).read_text() for name in modules)
    codes = set(re.findall(r'code="(\w+)"', source)) | set(re.findall(r'code="\w+" if \w+ else "(\w+)"', source))

    assert codes == set(REASONS)


def test_the_contributing_page_has_the_import_rule() -> None:
    rows = "\n".join(row.partition(":")[0] for row in tiers())

    assert f"```text\n{rows}\n```" in (ROOT / "CONTRIBUTING.md").read_text()


def test_the_table_of_changes_names_files_that_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page[page.index("## To change X") : page.index("## Style")]
    paths = re.findall(r"`([\w/]+\.(?:py|sql|lua))`", table)

    assert len(paths) > 30
    assert [path for path in paths if not (SOURCE / path).exists() and not (ROOT / path).exists()] == []


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page.parent.name != "decisions"]

    assert [page for page in pages if page != "README.md" and f"({page})" not in index] == []


def test_links_to_a_heading_lead_to_one() -> None:
    lost = []
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
            text = ((page.parent / target) if target else page).read_text()
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            if anchor not in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]:
                lost.append(f"{page.name}: {target}#{anchor}")

    assert lost == []


def test_the_glossary_has_one_line_for_each_word_and_one_for_each_status() -> None:
    words = re.findall(r"^\| ([^|]+?) \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    counted = Counter(word for word in words if word != "Term" and not word.startswith("--"))

    assert [word for word, count in counted.items() if count > 1] == []
    assert [status for status in Status if status not in counted] == []


def test_the_names_of_parameters_are_those_of_the_code() -> None:
    """The stubs are made from the source; this asks the running code instead."""
    for shown in CLASSES.values():
        for name in shown.members:
            function = inspect.getattr_static(shown.kind, name)
            if inspect.isfunction(function):
                for parameter in inspect.signature(function).parameters:
                    assert re.search(rf"\b{parameter}\b", PAGE), f"{shown.kind.__name__}.{name}({parameter})"
