"""Runs behind HTTP that wait for people, and those that the guard forbids."""

from typing import Any

from ade import Ade, Context, Status, StepDenied
from ade.approvals import repository as approvals_repository
from ade.approvals.guard import GuardRule
from ade.approvals.service import vote
from ade.failures import FailureKind
from tests.domain import Decision, Gate, GuardOccasion, GuardRulesVerdict, Role, Rulebook, VoteRequest
from tests.server.conftest import ServerHarness
from tests.waiting import eventually
from tests.worker.remote.conftest import Remote, at_work


async def agreed(remote: Remote, task_id: str, step: str) -> None:
    """Once the task waits for people, one of them says yes."""
    task = await remote.until(task_id, Status.REVIEWING)
    assert task.review is not None
    gate = task.review.gate
    assert gate is not None
    assert gate.step == step
    ballot = VoteRequest(
        voter="rita", decision=Decision.APPROVE, approval=gate.id, digest=gate.digest, reason="fine", via="test"
    )
    await vote(remote.server.stores, task_id, ballot)


async def test_a_run_waits_for_people_and_goes_on_when_they_agree(server: ServerHarness, app: Ade) -> None:
    went_on = list[int]()

    @app.task
    async def publish(ctx: Context) -> str:
        await ctx.hold("go live", {"page": 1}, reason="everybody sees it")
        went_on.append(ctx.attempt)
        return "live"

    await server.person("rita", Role.REVIEWER)
    async with at_work(server, app) as remote:
        task_id = await remote.task("publish")
        await agreed(remote, task_id, "go live")
        ended = await remote.final(task_id)
        assert (ended.status, went_on) == (Status.COMPLETED, [1])


async def test_the_guard_judges_tools_behind_http_too(server: ServerHarness, app: Ade) -> None:
    @app.task
    async def use(tool: str, ctx: Context) -> str:
        await ctx.guard(tool, {"path": "/etc"})
        return "used"

    rules = (
        GuardRule(do=GuardRulesVerdict.DENY, at=frozenset({GuardOccasion.TOOL}), tool="rm", reason="never"),
        GuardRule(do=GuardRulesVerdict.DEMAND, at=frozenset({GuardOccasion.TOOL}), tool="edit", reason="look first"),
    )
    await approvals_repository.apply(server.stores, Rulebook(guard=rules), actor="root")
    await server.person("rita", Role.REVIEWER)
    async with at_work(server, app) as remote:
        assert await remote.result("use", {"tool": "ls"}) == "used"
        denied = await remote.final(await remote.task("use", {"tool": "rm"}))
        assert denied.error is not None
        assert (denied.error.type, denied.error.kind, denied.attempt) == ("Denied", FailureKind.UNRECOVERABLE, 1)
        task_id = await remote.task("use", {"tool": "edit"})
        await agreed(remote, task_id, "tool edit")
        assert (await remote.final(task_id)).status is Status.COMPLETED


async def responded(remote: Remote, task_id: str, voter: str = "rita", but: str = "", **fields: Any) -> str:
    """Once the task waits for people at another gate than this one, one of them responds; the ID of that gate."""

    async def look() -> Gate | None:
        task = await remote.until(task_id, Status.REVIEWING)
        gate = None if task.review is None else task.review.gate
        return None if gate is None or gate.id == but else gate

    gate = await eventually(look)
    known: dict[str, Any] = {"decision": Decision.RESPOND, "approval": gate.id, "digest": gate.digest}
    await vote(remote.server.stores, task_id, VoteRequest(voter=voter, **(known | fields)))
    return gate.id


async def test_a_run_behind_http_gets_what_people_respond(server: ServerHarness, app: Ade) -> None:
    @app.task
    async def publish(ctx: Context, reads: bool) -> list[Any]:
        response = await ctx.hold("go live", {"page": 1}, responses=reads)
        return [bool(response), response.text, response.args, response.by]

    await server.person("rita", Role.REVIEWER)
    await server.person("rob", Role.REVIEWER)
    async with at_work(server, app) as remote:
        words, edit, deaf = [await remote.task("publish", {"reads": reads}) for reads in (True, True, False)]
        await responded(remote, words, text="not now")
        first = await responded(remote, edit, text="this one", args={"page": 2})
        await responded(remote, edit, "rob", but=first, decision=Decision.APPROVE)
        await responded(remote, deaf, decision=Decision.REJECT, go_on=True, reason="never")

        assert await remote.value(words) == [False, "not now", None, "rita"]
        assert await remote.value(edit) == [True, "this one", {"page": 2}, "rita"]
        denied = await remote.final(deaf)
        assert denied.error is not None
        expected = ("StepDenied", "rita did not approve: go live. Response: never")
        assert (denied.error.type, denied.error.message) == expected


async def test_a_tool_call_behind_http_is_denied_with_the_text(server: ServerHarness, app: Ade) -> None:
    @app.task
    async def use(ctx: Context) -> str:
        try:
            await ctx.guard("edit", {"path": "/etc"})
        except StepDenied as error:
            return f"continued: {error.detail}"
        return "used"

    rule = GuardRule(do=GuardRulesVerdict.DEMAND, at=frozenset({GuardOccasion.TOOL}), tool="edit", reason="look first")
    await approvals_repository.apply(server.stores, Rulebook(guard=(rule,)), actor="root")
    await server.person("rita", Role.REVIEWER)
    async with at_work(server, app) as remote:
        task_id = await remote.task("use")
        await responded(remote, task_id, text="use /tmp")
        assert await remote.value(task_id) == "continued: rita did not approve: tool edit. Response: use /tmp"
