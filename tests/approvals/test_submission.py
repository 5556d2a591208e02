"""The guard meets whatever comes in and whatever is about to run, however it came there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ade import Ade, Context, Denied, Status
from ade.approvals import repository as approvals_repository
from ade.failures import FailureKind
from ade.testing import TestKit, harness
from tests.approvals.scene import Scene
from tests.domain import Payloads, TaskFunction, TaskQuery, enqueue, read_rulebook

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
    app = Ade("memory://", author="ada")

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
        assert await made.stores.maintenance.check_invariants() == []


@pytest.fixture
async def services() -> AsyncIterator[Office]:
    async with _office() as made:
        yield made


async def test_what_is_forbidden_is_not_stored_and_that_is_told(services: Office) -> None:
    await services.guarded(NEVER)
    with pytest.raises(Denied):
        await services.app.enqueue("wipe", {"what": "disk"}, author="ada")

    assert await services.names() == []
    assert await services.denials() == ["enqueue"]


async def test_of_many_all_are_stored_or_none(services: Office) -> None:
    await services.guarded({**NEVER, "when": {"what": "disk"}})
    calls = [services.wipe.call(what) for what in ("cache", "disk")]
    with pytest.raises(Denied):
        await services.app.enqueue_many(calls)

    assert await services.names() == []
    await services.app.enqueue_many(calls[:1])
    assert await services.names() == ["wipe"]


async def test_what_somebody_must_look_at_waits_without_a_lease(services: Office) -> None:
    await services.guarded(ASK)
    task = await services.app.enqueue("wipe", {"what": "disk"}, author="ada")
    assert await services.kit.drain() == 0
    found = await task.get()
    assert (found.status, found.lease_until, services.done) == (Status.REVIEWING, None, [])

    await services.vote(task, "bob")
    await services.kit.drain()
    assert services.done == ["wiped disk"]


async def test_large_arguments_are_judged_by_what_they_are(services: Office) -> None:
    await services.guarded({**NEVER, "when": {"what": f"*{LARGE[:100]}*"}})

    with pytest.raises(Denied):
        await services.app.enqueue("wipe", {"what": LARGE}, author="ada")
    assert await services.names() == []


async def test_a_rule_that_comes_later_holds_for_what_is_stored_already(services: Office) -> None:
    denied = await services.app.enqueue("wipe", {"what": "disk"}, author="ada")
    large = await services.app.enqueue("wipe", {"what": LARGE}, author="ada")
    await services.guarded({**NEVER, "when": {"what": "disk"}}, ASK)
    await services.kit.drain()

    found = await denied.get()
    assert found.error is not None
    assert (found.status, found.error.kind) == (Status.FAILED, FailureKind.DENIED)
    assert (await large.status(), services.done) == (Status.REVIEWING, [])
    assert await services.denials() == ["run"]
    await services.vote(large, "bob")
    await services.kit.drain()
    assert services.done == ["wiped xxxxxxxxxx"]


async def test_what_a_schedule_brings_is_judged_before_it_runs(services: Office) -> None:
    await services.kit.drain()  # a worker brings the schedule
    await services.guarded({**ASK, "name": "*nightly_wipe"})
    await services.kit.advance(3_600)
    await services.kit.drain()

    page = await services.stores.tasks.find(TaskQuery(limit=10))
    assert [task.status for task in page.tasks] == [Status.REVIEWING]
    assert services.done == []


async def test_whoever_knows_only_old_rules_cannot_slip_anything_past_the_new_ones(services: Office) -> None:
    """Stored as a process would that has not heard of them yet."""
    await services.guarded(NEVER)
    task = services.wipe.make_task("disk")
    await enqueue(services.stores, Payloads(services.stores.blobs), [task])
    await services.kit.drain()

    [found] = await services.stores.tasks.get([task.id])
    assert found is not None
    assert (found.status, services.done) == (Status.FAILED, [])


async def test_what_a_run_enqueues_is_judged_too(services: Office) -> None:
    await services.guarded(NEVER)
    task = await services.app.enqueue("spawn", {}, author="ada", max_attempts=1)
    await services.kit.drain()

    found = await task.get()
    assert found.error is not None
    assert (found.status, found.error.type) == (Status.FAILED, "Denied")
    assert await services.names() == ["spawn"]


async def test_a_tool_is_called_forbidden_or_waited_for(services: Office) -> None:
    forbid = {"do": "deny", "tool": "shell", "when": {"line": "*rm -rf*"}, "reason": "never"}
    look = {"do": "demand", "tool": "shell", "reason": "shells are looked at"}
    await services.guarded(forbid, look)
    free, bad, held = [
        await services.app.enqueue("call", {"tool": tool, "arguments": {"line": line}}, author="ada", max_attempts=1)
        for tool, line in (("search", "x"), ("shell", "rm -rf /"), ("shell", "ls"))
    ]
    await services.kit.drain()

    assert await free.status() is Status.COMPLETED
    found = await bad.get()
    assert found.error is not None
    assert (found.status, found.error.type) == (Status.FAILED, "Denied")
    assert await held.status() is Status.REVIEWING
    assert services.done.count("called shell") == 0
    await services.vote(held, "bob")
    await services.kit.drain()
    assert services.done.count("called shell") == 1
    assert await services.denials() == ["tool"]


async def test_other_arguments_of_a_tool_need_another_answer(services: Office) -> None:
    """What was approved is this call, and no other that the run makes when it begins anew."""
    await services.guarded({"do": "demand", "tool": "shell", "reason": "shells are looked at"})
    lines = iter(["ls", "rm"])

    @services.app.task(name="fickle")
    async def fickle(ctx: Context) -> None:
        await ctx.guard("shell", {"line": next(lines, "rm")})
        services.done.append("called")

    task = await services.app.enqueue("fickle", {}, author="ada")
    await services.kit.drain()
    await services.vote(task, "bob")
    await services.kit.drain()
    assert (await task.status(), services.done) == (Status.REVIEWING, [])
    await services.vote(task, "bob")
    await services.kit.drain()
    assert services.done == ["called"]


async def test_rules_change_while_many_come_in(services: Office) -> None:
    """Whenever they came: from the change on none of them runs."""

    async def store() -> list[str]:
        answers = await asyncio.gather(
            *(services.app.enqueue("wipe", {"what": str(number)}, author="ada") for number in range(20)),
            return_exceptions=True,
        )
        return [answer.id for answer in answers if not isinstance(answer, BaseException)]

    async with asyncio.TaskGroup() as group:
        stored = group.create_task(store())
        group.create_task(services.guarded(NEVER))
    await services.kit.drain()

    assert services.done == []
    found = await services.stores.tasks.get(stored.result())
    assert {task.status for task in found if task is not None} <= {Status.FAILED}
