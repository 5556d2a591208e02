"""Ways around an approval that somebody might try: each is closed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw

from ade import ConflictOfInterest, Context, DigestMismatch, Status
from ade.approvals import service as approvals_service
from ade.approvals import submission
from ade.errors import InvalidTask
from ade.settings import runtime
from ade.tasks import service as tasks_service
from tests.approvals.scene import CHANGES, ONE, REJECT, Scene, scene
from tests.domain import ApprovalProof, TaskQuery, User, VoteRequest, add_user

STRICT = {"id": "strict", "rules": [{"needed": 2, "roles": ["dba"]}]}
EASY = {"id": "easy", "rules": [{"needed": 1, "roles": ["reviewer"]}]}
DEMANDED = {"name": "*", "do": "demand", "policy": "strict", "reason": "this is delicate"}


@pytest.fixture
async def here() -> AsyncIterator[Scene]:
    async with scene() as made:
        await made.people(ada="operator reviewer", bob="reviewer", cyd="reviewer", root="admin", dora="dba", dan="dba")
        yield made


def plain(here: Scene) -> None:
    @here.app.task(name="plain", max_attempts=1)
    async def plain(what: str, number: int = 0) -> str:
        here.deployed.append(what)
        if here.fails:
            raise RuntimeError("no luck")
        return what


async def policies(here: Scene, handle: Any) -> tuple[str, ...]:
    return (await here.gate(handle)).policies


async def test_a_draft_meets_the_guard_as_everything_does(here: Scene) -> None:
    await here.rules(STRICT, guard=[DEMANDED])
    draft = await here.app.draft("deploy", {"what": "shop"}, author="ada")
    await draft.submit(by="ada")
    await here.kit.drain()

    assert await policies(here, draft) == ("strict",)


async def test_a_draft_of_what_is_denied_goes_back(here: Scene) -> None:
    denied = {"name": "deploy", "do": "deny", "reason": "never", "at": ["enqueue"]}
    draft = await here.app.draft("deploy", {"what": "shop"}, author="ada")
    await here.rules(guard=[denied])
    await draft.submit(by="ada")
    await here.kit.drain()

    after = await draft.get()
    assert after.status is Status.DRAFT
    assert after.review is not None
    assert "never" in after.review.errors[0]


async def test_a_weak_policy_of_ones_own_does_not_replace_what_the_guard_demands(here: Scene) -> None:
    plain(here)
    await here.rules(EASY, STRICT)
    task = await here.app.enqueue("plain", {"what": "x"}, author="ada", approval="easy")
    await here.rules(EASY, STRICT, guard=[{**DEMANDED, "at": ["run"]}])
    await here.vote(task, "bob")
    await here.kit.drain()

    assert here.deployed == []
    assert set(await policies(here, task)) == {"easy", "strict"}


async def test_whoever_replays_with_other_arguments_has_a_hand_in_it(here: Scene) -> None:
    here.fails = True
    task = await here.asked(max_attempts=1)
    await here.vote(task, "bob")
    await here.kit.drain()
    await submission.replay(here.stores, here.kit._opened.payloads, task.id, args=Raw(b'{"what":"evil"}'), actor="cyd")
    await here.kit.drain()

    with pytest.raises(ConflictOfInterest):
        await here.vote(task, "cyd")


async def test_the_author_of_a_task_has_a_hand_in_what_it_enqueues(here: Scene) -> None:
    deploy: Any = here.app.registry

    @here.app.task(name="parent")
    async def parent(ctx: Context) -> str:
        from ade.app.functions import TaskFunction

        child: Any = TaskFunction(here.app, deploy.get("deploy"))
        return str((await ctx.enqueue(child, what="shop")).id)

    handle = await here.app.enqueue("parent", author="bob")
    await here.kit.drain()
    child = here.app.handle(await handle.result(1))

    with pytest.raises(ConflictOfInterest):
        await here.vote(child, "bob")


async def test_nobody_is_asked_but_the_window_and_the_hand_still_count(here: Scene) -> None:
    plain(here)
    await here.rules({**EASY, "auto_approve": "low"})
    await runtime.switch(here.stores, "auto_approve_low_risk", True, actor="root")
    now = datetime.fromtimestamp(here.kit.clock.now() / 1000, UTC)
    window = (now + timedelta(hours=1), now + timedelta(hours=2))
    later = await here.app.enqueue("plain", {"what": "later"}, approval="easy", window=window, author="ada")
    by_hand = await here.app.enqueue("plain", {"what": "hand"}, approval="easy", start="by_hand", author="ada")
    await here.kit.drain()

    assert here.deployed == []
    assert (await by_hand.status()) is Status.APPROVED
    await here.kit.advance(3_600)
    await here.kit.drain()
    assert here.deployed == ["later"]
    assert (await later.status()) is Status.COMPLETED


async def test_what_comes_after_its_window_does_not_run_and_asks_nobody(here: Scene) -> None:
    now = datetime.fromtimestamp(here.kit.clock.now() / 1000, UTC)
    task = await here.asked(window=(now, now + timedelta(hours=1)))
    await here.vote(task, "bob")
    here.kit.clock.advance(2 * 3_600)
    await here.kit.drain()

    assert here.deployed == []
    assert (await task.status()) is Status.FAILED


async def test_an_older_yes_does_not_come_back_to_life(here: Scene) -> None:
    await here.rules({**ONE, "deny_threshold": 2, "rules": [{"needed": 2, "roles": ["reviewer"]}]})
    await add_user(here.stores, User(id="bob2", person="bob", roles=frozenset({"reviewer"})))
    task = await here.asked()
    await here.vote(task, "bob")
    await here.vote(task, "bob2", REJECT)
    await here.change("bob2", is_active=False)
    await here.vote(task, "cyd")
    await here.kit.advance(10)

    assert (await task.status()) is Status.REVIEWING


async def test_asking_again_without_a_change_goes_back(here: Scene) -> None:
    task = await here.asked()
    await here.vote(task, "bob", CHANGES)
    await task.submit(by="ada")
    await here.kit.drain()

    after = await task.get()
    assert after.status is Status.DRAFT
    assert after.review is not None
    assert "bob asked for changes" in after.review.errors[0]


async def test_an_answer_is_about_one_gate(here: Scene) -> None:
    task = await here.asked(start="by_hand")
    before = (await here.gate(task)).digest
    await here.vote(task, "bob")
    await approvals_service.revoke(here.stores, task.id, "wait", actor="bob")

    with pytest.raises(DigestMismatch):
        await here.vote(task, "bob", digest=before)


@pytest.mark.parametrize("field", ["description", "tags", "max_attempts"])
async def test_whatever_people_are_shown_is_in_the_digest(here: Scene, field: str) -> None:
    other: dict[str, Any] = {"description": "other", "tags": ("other",), "max_attempts": 7}
    task = await here.asked()
    before = (await here.gate(task)).digest
    await here.vote(task, "bob", CHANGES)
    await tasks_service.edit(here.stores, here.kit._opened.payloads, task.id, actor="ada", **{field: other[field]})
    await task.submit(by="ada")
    await here.kit.drain()

    assert (await here.gate(task)).digest != before
    assert (await task.status()) is Status.REVIEWING


@pytest.mark.parametrize("name", ["deploy:preview", "deploy:rollback"])
async def test_nobody_enqueues_the_parts_of_a_task(here: Scene, name: str) -> None:
    await here.kit.drain()
    with pytest.raises(InvalidTask):
        await here.app.enqueue(name, {"what": "shop"}, allow_unknown=True)


async def test_what_cannot_be_judged_does_not_run_and_is_not_undone(here: Scene) -> None:
    plain(here)
    task = await here.app.enqueue("plain", {"what": "x" * 10, "number": 2**60}, rollback="automatic")
    await here.rules(EASY, guard=[{"name": "plain", "do": "demand", "reason": "look", "policy": "easy"}])
    await here.kit.drain()

    after = await task.get()
    assert (after.status, here.deployed) == (Status.FAILED, [])
    assert after.error is not None
    assert after.error.kind == "denied"
    assert (await here.stores.tasks.find(TaskQuery(name="plain:rollback"))).tasks == []


async def test_the_audit_knows_an_automatic_approval_of_a_replay(here: Scene) -> None:
    plain(here)
    await here.rules({**EASY, "auto_approve": "low"})
    await runtime.switch(here.stores, "auto_approve_low_risk", True, actor="root")
    here.fails = True
    task = await here.app.enqueue("plain", {"what": "x"}, approval="easy", author="ada")
    await here.kit.drain()
    here.fails = False
    await submission.replay(here.stores, here.kit._opened.payloads, task.id)
    await here.kit.drain()
    await here.kit.drain()

    assert here.deployed == ["x", "x"]
    proof = ApprovalProof()
    assert [fault for event in await here.stores.events.read(0, 1_000) if (fault := proof.add(event))] == []
    assert proof.starts == 2


async def test_what_is_stale_again_and_again_is_looked_at(here: Scene) -> None:
    await here.rules({**ONE, "auto_approve": "low"})
    await runtime.switch(here.stores, "auto_approve_low_risk", True, actor="root")
    here.is_restless = True
    task = await here.asked()

    assert here.deployed == []
    assert (await task.status()) is Status.REVIEWING


async def test_a_step_that_is_rejected_undoes_what_came_before(here: Scene) -> None:
    done: list[str] = []

    @here.app.task(name="halves")
    async def halves(ctx: Context) -> None:
        done.append("first")
        await ctx.hold("the second half", {"password": "hunter2"})

    @halves.rollback
    async def undo() -> None:
        done.append("undone")

    task = await here.app.enqueue("halves", author="ada", rollback="automatic")
    await here.kit.drain()
    await here.vote(task, "bob", REJECT)
    await here.kit.drain()

    assert (await task.status()) is Status.REJECTED
    assert done == ["first", "undone"]
    told = [str(event.payload) for event in await here.stores.events.read(0, 1_000)]
    assert not any("hunter2" in each for each in told)  # what a step is about stays out of the log


async def test_a_step_needs_no_second_start(here: Scene) -> None:
    done: list[str] = []

    @here.app.task(name="halves")
    async def halves(ctx: Context) -> None:
        await ctx.hold("the second half")
        done.append("second")

    await here.rules(EASY)
    task = await here.app.enqueue("halves", author="ada", approval="easy", start="by_hand")
    await here.vote(task, "bob")
    await task.start(by="ada")
    await here.kit.drain()
    await here.vote(task, "bob")
    await here.kit.drain()

    assert done == ["second"]


async def test_a_preview_that_finds_something_wrong_by_now_stops_the_run(here: Scene) -> None:
    task = await here.asked()
    await here.vote(task, "bob")
    here.faults.append("the disk is full")
    await here.kit.drain()

    assert here.deployed == []
    assert (await task.status()) is Status.DRAFT


async def test_a_tool_call_is_judged_by_the_resources_of_its_task(here: Scene) -> None:
    @here.app.task(name="agent", max_attempts=3)
    async def agent(ctx: Context) -> None:
        await ctx.guard("Bash", {"command": "ls"})
        here.deployed.append("ls")

    await here.rules(guard=[{"tool": "Bash", "resources": ["db:prod"], "do": "deny", "reason": "not there"}])
    task = await here.app.enqueue("agent", resources=["db:prod"])
    await here.kit.drain()

    assert (await task.status(), here.deployed) == (Status.FAILED, [])
    assert (await task.get()).attempt == 1  # it is not tried again


def halves(here: Scene, done: list[str]) -> None:
    @here.app.task(name="halves", max_attempts=1)
    async def halves(ctx: Context) -> None:
        done.append("first")
        await ctx.hold("the second half")
        done.append("second")

    @halves.rollback
    async def undo() -> None:
        done.append("undone")


async def test_two_who_say_no_at_once_undo_it_too(here: Scene) -> None:
    done: list[str] = []
    halves(here, done)
    await here.rules({**EASY, "id": "two", "names": ["halves"], "deny_threshold": 2})
    task = await here.app.enqueue("halves", author="ada", rollback="automatic", approval="two")
    await here.vote(task, "bob")
    await here.kit.drain()
    await asyncio.gather(here.vote(task, "bob", REJECT), here.vote(task, "cyd", REJECT))
    await here.kit.drain()

    assert (await task.status()) is Status.REJECTED
    assert done == ["first", "undone"]


async def test_a_no_after_the_fact_undoes_nothing_by_itself(here: Scene) -> None:
    done: list[str] = []
    halves(here, done)
    await here.rules(EASY)
    task = await here.app.enqueue("halves", author="ada", rollback="automatic", approval="easy")
    await here.rules(EASY, guard=[{"name": "halves", "at": ["run"], "do": "deny", "reason": "no"}])
    now = here.kit.clock.now()
    await approvals_service.break_glass(here.stores, task.id, "fire", actor="root", authenticated_at=now)
    await here.kit.drain()
    assert (await task.status()) is Status.FAILED
    review = (await task.get()).review
    assert review is not None
    [later] = [gate for gate in review.gates if gate.step == "after the fact"]
    ballot = VoteRequest(voter="bob", decision=REJECT, approval=later.id, digest=later.digest)
    await approvals_service.vote(here.stores, task.id, ballot)
    await here.kit.drain()

    assert done == []


async def test_accounts_of_one_person_stay_that_for_votes_they_gave(here: Scene) -> None:
    await here.rules({**ONE, "rules": [{"needed": 2, "roles": ["reviewer"]}]})
    await add_user(here.stores, User(id="bob2", person="bob", roles=frozenset({"reviewer"})))
    task = await here.asked()
    await here.vote(task, "bob")
    await here.vote(task, "bob2")
    await here.change("bob2", person="")
    await here.kit.advance(10)

    assert (await task.status()) is Status.REVIEWING


async def test_what_went_back_unchanged_can_still_be_dismissed(here: Scene) -> None:
    task = await here.asked()
    await here.vote(task, "bob", CHANGES)
    await task.submit(by="ada")
    await here.kit.drain()
    assert (await task.status()) is Status.DRAFT

    await approvals_service.dismiss(here.stores, task.id, "bob", "he is away", actor="root")
    assert (await task.status()) is Status.REVIEWING


async def test_an_amendment_must_change_something_that_matters(here: Scene) -> None:
    task = await here.asked()
    gate = await here.gate(task)
    ballot = VoteRequest(voter="bob", decision=CHANGES, approval=gate.id, digest=gate.digest)
    with pytest.raises(InvalidTask):
        await approvals_service.amend(here.stores, here.kit._opened.payloads, task.id, ballot, priority=0)
    assert (await here.gate(task)).votes == ()


async def test_a_step_that_was_approved_under_less_than_the_guard_demands_waits_again(here: Scene) -> None:
    @here.app.task(name="agent")
    async def agent(ctx: Context) -> None:
        await ctx.guard("Bash", {"command": "git push"})
        here.deployed.append("pushed")

    demand = {"tool": "Bash", "do": "demand", "policy": "easy", "reason": "look"}
    await here.rules(EASY, STRICT, guard=[demand])
    task = await here.app.enqueue("agent", author="ada")
    await here.kit.drain()
    await here.vote(task, "bob")
    await here.rules(EASY, STRICT, guard=[{**demand, "policy": "strict"}])
    await here.kit.drain()

    assert here.deployed == []
    assert await policies(here, task) == ("strict",)


@pytest.mark.parametrize("step", ["after the fact", "tool Bash"])
async def test_a_step_cannot_have_a_name_of_ades_own(here: Scene, step: str) -> None:
    @here.app.task(name="odd", max_attempts=1)
    async def odd(ctx: Context) -> None:
        await ctx.hold(step)

    task = await here.app.enqueue("odd")
    await here.kit.drain()

    assert (await task.status()) is Status.FAILED
