"""The guard meets whatever comes in and whatever is about to run, however it came there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ade.app.ade import Ade
from ade.app.functions import TaskFunction
from ade.approvals import repository as approvals_repository
from ade.approvals.errors import Denied
from ade.approvals.rulebook_document import read_rulebook
from ade.failures import FailureKind
from ade.stores.ports import TaskQuery
from ade.tasks.enqueue import enqueue
from ade.tasks.lifecycle import Status
from ade.tasks.payloads import Payloads
from ade.testing import TestKit, harness
from ade.worker.context import Context
from tests.governance.approvals.scene import Scene

NEVER = {"do": "deny", "name": "*wipe", "reason": "nothing is wiped here"}
ASK = {"do": "demand", "name": "*wipe", "reason": "somebody should look"}
LARGE = "x" * 200_000


class Office(Scene):
    """`wipe` and `call` are plain tasks; what they did is kept."""

    def __init__(self, app: Ade, kit: TestKit) -> None:
        super().__init__(app, kit)
        self.done: list[str] = []
        self.wipe: TaskFunction[[str], None]

    async def guarded(self, *rules: dict[str, Any]) -> None:
        await approvals_repository.apply(self.stores, read_rulebook({"guard": list(rules)}), actor="root")

    async def names(self) -> list[str]:
        return [task.name for task in (await self.stores.tasks.find(TaskQuery(limit=50))).tasks]

    async def denials(self) -> list[object]:
        events = await self.stores.events.read(0, 1_000)
        return [event.payload["occasion"] for event in events if event.type == "guard.denied"]


@asynccontextmanager
async def _office() -> AsyncIterator[Office]:
    app = Ade("memory://")

    @app.task(name="wipe")
    async def wipe(what: str) -> None:
        made.done.append(f"wiped {what[:10]}")

    @app.task(name="call")
    async def call(tool: str, arguments: dict[str, Any], ctx: Context) -> None:
        made.done.append("began")
        await ctx.guard(tool, arguments)
        made.done.append(f"called {tool}")

    @app.task(name="spawn")
    async def spawn(ctx: Context) -> None:
        await ctx.enqueue(wipe, "child")

    @app.cron("0 * * * *", name="nightly", arguments={"what": "all"})
    async def nightly_wipe(what: str) -> None:
        made.done.append(f"wiped {what}")

    async with harness(app) as kit:
        made = Office(app, kit)
        made.wipe = wipe
        await made.people(ada="reviewer", bob="reviewer", root="admin")
        yield made
        assert await made.stores.upkeep.check_invariants() == []


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    async with _office() as made:
        yield made


async def test_what_is_forbidden_is_not_stored_and_that_is_told(office: Office) -> None:
    await office.guarded(NEVER)
    with pytest.raises(Denied):
        await office.app.enqueue("wipe", {"what": "disk"}, author="ada")

    assert await office.names() == []
    assert await office.denials() == ["enqueue"]


async def test_of_many_all_are_stored_or_none(office: Office) -> None:
    await office.guarded({**NEVER, "when": {"what": "disk"}})
    calls = [office.wipe.call(what) for what in ("cache", "disk")]
    with pytest.raises(Denied):
        await office.app.enqueue_many(calls)

    assert await office.names() == []
    await office.app.enqueue_many(calls[:1])
    assert await office.names() == ["wipe"]


async def test_what_somebody_must_look_at_waits_without_a_lease(office: Office) -> None:
    await office.guarded(ASK)
    task = await office.app.enqueue("wipe", {"what": "disk"}, author="ada")
    assert await office.kit.drain() == 0
    found = await task.get()
    assert (found.status, found.lease_until, office.done) == (Status.REVIEWING, None, [])

    await office.vote(task, "bob")
    await office.kit.drain()
    assert office.done == ["wiped disk"]


async def test_large_arguments_are_judged_by_what_they_are(office: Office) -> None:
    await office.guarded({**NEVER, "when": {"what": f"*{LARGE[:100]}*"}})

    with pytest.raises(Denied):
        await office.app.enqueue("wipe", {"what": LARGE}, author="ada")
    assert await office.names() == []


async def test_a_rule_that_comes_later_holds_for_what_is_stored_already(office: Office) -> None:
    denied = await office.app.enqueue("wipe", {"what": "disk"}, author="ada")
    large = await office.app.enqueue("wipe", {"what": LARGE}, author="ada")
    await office.guarded({**NEVER, "when": {"what": "disk"}}, ASK)
    await office.kit.drain()

    found = await denied.get()
    assert found.error is not None
    assert (found.status, found.error.kind) == (Status.FAILED, FailureKind.DENIED)
    assert (await large.status(), office.done) == (Status.REVIEWING, [])
    assert await office.denials() == ["run"]
    await office.vote(large, "bob")
    await office.kit.drain()
    assert office.done == ["wiped xxxxxxxxxx"]


async def test_what_a_schedule_brings_is_judged_before_it_runs(office: Office) -> None:
    await office.kit.drain()  # a worker brings the schedule
    await office.guarded({**ASK, "name": "*nightly_wipe"})
    await office.kit.advance(3_600)
    await office.kit.drain()

    page = await office.stores.tasks.find(TaskQuery(limit=10))
    assert [task.status for task in page.tasks] == [Status.REVIEWING]
    assert office.done == []


async def test_whoever_knows_only_old_rules_cannot_slip_anything_past_the_new_ones(office: Office) -> None:
    """Stored as a process would that has not heard of them yet."""
    await office.guarded(NEVER)
    task = office.wipe.make_task("disk")
    await enqueue(office.stores, Payloads(office.stores.blobs), [task])
    await office.kit.drain()

    [found] = await office.stores.tasks.get([task.id])
    assert found is not None
    assert (found.status, office.done) == (Status.FAILED, [])


async def test_what_a_run_enqueues_is_judged_too(office: Office) -> None:
    await office.guarded(NEVER)
    task = await office.app.enqueue("spawn", {}, author="ada", max_attempts=1)
    await office.kit.drain()

    found = await task.get()
    assert found.error is not None
    assert (found.status, found.error.type) == (Status.FAILED, "Denied")
    assert await office.names() == ["spawn"]


async def test_a_tool_is_called_forbidden_or_waited_for(office: Office) -> None:
    forbid = {"do": "deny", "tool": "shell", "when": {"line": "*rm -rf*"}, "reason": "never"}
    look = {"do": "demand", "tool": "shell", "reason": "shells are looked at"}
    await office.guarded(forbid, look)
    free, bad, held = [
        await office.app.enqueue("call", {"tool": tool, "arguments": {"line": line}}, author="ada", max_attempts=1)
        for tool, line in (("search", "x"), ("shell", "rm -rf /"), ("shell", "ls"))
    ]
    await office.kit.drain()

    assert await free.status() is Status.COMPLETED
    found = await bad.get()
    assert found.error is not None
    assert (found.status, found.error.type) == (Status.FAILED, "Denied")
    assert await held.status() is Status.REVIEWING
    assert office.done.count("called shell") == 0
    await office.vote(held, "bob")
    await office.kit.drain()
    assert office.done.count("called shell") == 1
    assert await office.denials() == ["tool"]


async def test_other_arguments_of_a_tool_need_another_answer(office: Office) -> None:
    """What was approved is this call, and no other that the run makes when it begins anew."""
    await office.guarded({"do": "demand", "tool": "shell", "reason": "shells are looked at"})
    lines = iter(["ls", "rm"])

    @office.app.task(name="fickle")
    async def fickle(ctx: Context) -> None:
        await ctx.guard("shell", {"line": next(lines, "rm")})
        office.done.append("called")

    task = await office.app.enqueue("fickle", {}, author="ada")
    await office.kit.drain()
    await office.vote(task, "bob")
    await office.kit.drain()
    assert (await task.status(), office.done) == (Status.REVIEWING, [])
    await office.vote(task, "bob")
    await office.kit.drain()
    assert office.done == ["called"]


async def test_rules_change_while_many_come_in(office: Office) -> None:
    """Whenever they came: from the change on none of them runs."""

    async def store() -> list[str]:
        answers = await asyncio.gather(
            *(office.app.enqueue("wipe", {"what": str(number)}, author="ada") for number in range(20)),
            return_exceptions=True,
        )
        return [answer.id for answer in answers if not isinstance(answer, BaseException)]

    async with asyncio.TaskGroup() as group:
        stored = group.create_task(store())
        group.create_task(office.guarded(NEVER))
    await office.kit.drain()

    assert office.done == []
    found = await office.stores.tasks.get(stored.result())
    assert {task.status for task in found if task is not None} <= {Status.FAILED}
