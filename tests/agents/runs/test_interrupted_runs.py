"""Runs of agents that do not end by themselves: cancelled, too slow, held back for people, or left by their worker."""

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ade import Ade, ConflictOfInterest, Status, Task, TaskHandle
from ade.agents.runs.model import progress_in, result_in
from ade.approvals import repository as approvals_repository
from ade.approvals import service as approvals_service
from ade.failures import FailureKind
from tests.agents.runs.fake_agent_app import app as house
from tests.agents.runs.fake_agent_app import profiles
from tests.agents.runs.test_runs import transcripts_of, until
from tests.domain import Decision, User, VoteRequest, add_user, read_rulebook
from tests.faults.workers import until as until_so


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Ade]:
    async with house(tmp_path) as opened:
        yield opened


async def hanging(app: Ade, handle: TaskHandle[Any]) -> list[int]:
    """The processes of a run, once it hangs: its own, and the one it has forked."""
    async with asyncio.timeout(60):
        async for line in handle.output(follow=True):
            word, _, pid = line.text.partition(" ")
            if word == "hanging":
                found = [int(pid)]
                found += [int(text.split()[1]) for text in await said(app, handle) if text.startswith("grandchild ")]
                return found
    raise AssertionError("it ended")


async def said(app: Ade, handle: TaskHandle[Any]) -> list[str]:
    return [line.text async for line in handle.output()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
async def test_a_cancelled_run_leaves_no_process_behind(app: Ade) -> None:
    async with app.worker():
        handle = await app.enqueue("agent:letta", {"prompt": "hi [[fork]] [[ignore-sigterm]] [[hang]]"})
        processes = await hanging(app, handle)
        await handle.cancel("not needed any more")
        ended = await handle.wait(timeout=60)

    assert ended.status is Status.CANCELLED
    assert len(processes) == 2
    await until_so(lambda: not any(is_alive(pid) for pid in processes), "all of it is gone")
    assert transcripts_of(app, ended)[0].read_text().endswith("[Task failed]\n")


async def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async with house(tmp_path) as app, app.worker():
        handle = await app.enqueue("agent:claude", {"prompt": "hi [[hang]]"}, timeout=1.5, max_attempts=1)
        ended = await handle.wait(timeout=60)

    assert ended.error is not None
    assert ended.error.kind is FailureKind.TIMED_OUT
    assert transcripts_of(app, ended)[0].read_text().endswith("[Task failed]\n")


async def test_a_worker_that_stops_hands_the_run_back_and_it_goes_on_in_its_session(app: Ade, tmp_path: Path) -> None:
    once = tmp_path / "hung"
    async with app.worker():
        handle = await app.enqueue("agent:claude", {"prompt": f"hi [[argv]] [[hang once={once}]]"})
        [process] = await hanging(app, handle)
    assert not is_alive(process)
    assert (await handle.get()).status is Status.PENDING

    async with app.worker():
        ended = await handle.wait(timeout=60)

    result = result_in(ended.result)
    assert result is not None
    assert "--resume=5c2b8f7e-1111-4222-8333-444455556666" in result.report
    assert len(transcripts_of(app, ended)) == 2


RULES = """
[[guard]]
tool = "Bash"
when = { command = "*rm *" }
do = "demand"
reason = "removes files"
"""


async def with_people(app: Ade) -> None:
    opened = await app.open()
    for name in ("ann", "bob", "cy"):
        await add_user(opened.stores, User(id=name, roles=frozenset({"reviewer"})))
    await apply(app, RULES)


async def apply(app: Ade, text: str) -> None:
    opened = await app.open()
    await approvals_repository.apply(opened.stores, read_rulebook(tomllib.loads(text)), actor="root")


async def approved(app: Ade, task: Task) -> None:
    await voted(app, task, Decision.APPROVE)


async def voted(app: Ade, task: Task, decision: Decision, voter: str = "bob", **fields: Any) -> Task:
    opened = await app.open()
    assert task.review is not None
    assert task.review.gate is not None
    gate = task.review.gate
    ballot = VoteRequest(voter=voter, decision=decision, approval=gate.id, digest=gate.digest, **fields)
    return await approvals_service.vote(opened.stores, task.id, ballot)


async def test_a_dangerous_tool_call_waits_for_people_without_a_worker_and_goes_on_in_its_session(app: Ade) -> None:
    await with_people(app)
    async with app.worker():
        handle = await app.enqueue("agent:claude", {"prompt": "clean up [[defer]]"}, author="ann")
        held = await until(handle, lambda task: task.status is Status.REVIEWING)
        progress = progress_in(held.progress)
        await approved(app, held)
        ended = await handle.wait(timeout=60)

    assert held.worker_id is None
    assert held.review is not None
    assert held.review.gate is not None
    assert held.review.gate.step == "tool Bash"
    assert progress is not None
    assert progress.is_deferred
    assert ended.status is Status.COMPLETED, ended.error
    result = result_in(ended.result)
    assert result is not None
    assert result.session_id == progress.session_id


@pytest.fixture(params=[False, True], ids=["ended", "deferred"])
async def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ade]:
    """Claude asks its hook before it uses a tool. It is ended at a dangerous call, or waits in its session."""
    async with house(tmp_path, profiles=profiles(claude={"guard": True, "can_defer": request.param})) as opened:
        await with_people(opened)
        yield opened


async def report_of(handle: TaskHandle[Any]) -> str:
    ended = await handle.wait(timeout=60)
    result = result_in(ended.result)
    assert result is not None, ended.error
    return result.report


async def test_a_hook_lets_harmless_calls_pass_and_defers_dangerous_ones_until_people_agree(guarded: Ade) -> None:
    async with guarded.worker():
        harmless = await guarded.enqueue("agent:claude", {"prompt": "[[use-tool command=ls_-l]]"}, author="ann")
        dangerous = await guarded.enqueue("agent:claude", {"prompt": "[[use-tool command=rm_-r_x]]"}, author="ann")
        assert await report_of(harmless) == "ran ls -l"
        held = await until(dangerous, lambda task: task.status is Status.REVIEWING)
        await approved(guarded, held)

        assert await report_of(dangerous) == "ran rm -r x"


async def test_a_call_that_a_reviewer_responds_to_is_denied_with_the_text_and_the_run_continues(guarded: Ade) -> None:
    async with guarded.worker():
        handle = await guarded.enqueue("agent:claude", {"prompt": "[[use-tool command=rm_-r_x]]"}, author="ann")
        held = await until(handle, lambda task: task.status is Status.REVIEWING)
        await voted(guarded, held, Decision.RESPOND, text="Move it to the trash instead.")

        denied = "deny: bob did not approve: tool Bash. Response: Move it to the trash instead."
        assert await report_of(handle) == denied


async def test_a_call_can_be_rejected_while_the_run_continues(guarded: Ade) -> None:
    async with guarded.worker():
        handle = await guarded.enqueue("agent:claude", {"prompt": "[[use-tool command=rm_-r_x]]"}, author="ann")
        held = await until(handle, lambda task: task.status is Status.REVIEWING)
        await voted(guarded, held, Decision.REJECT, go_on=True, reason="keep it")

        assert await report_of(handle) == "deny: bob did not approve: tool Bash. Response: keep it"


async def test_a_rejected_call_ends_the_run_by_default(guarded: Ade) -> None:
    async with guarded.worker():
        handle = await guarded.enqueue("agent:claude", {"prompt": "[[use-tool command=rm_-r_x]]"}, author="ann")
        held = await until(handle, lambda task: task.status is Status.REVIEWING)
        await voted(guarded, held, Decision.REJECT)

        assert (await handle.wait(timeout=60)).status is Status.REJECTED


async def test_the_agent_makes_a_call_with_edited_arguments_once_another_reviewer_approves_them(guarded: Ade) -> None:
    async with guarded.worker():
        handle = await guarded.enqueue("agent:claude", {"prompt": "[[use-tool command=rm_-r_x]]"}, author="ann")
        held = await until(handle, lambda task: task.status is Status.REVIEWING)
        edited = await voted(guarded, held, Decision.RESPOND, text="less", args={"command": "rm x/old"})
        assert edited.status is Status.REVIEWING
        with pytest.raises(ConflictOfInterest):
            await voted(guarded, edited, Decision.APPROVE)
        await voted(guarded, edited, Decision.APPROVE, voter="cy")

        assert await report_of(handle) == "ran rm x/old"


async def test_without_a_hook_the_next_prompt_denies_the_call(app: Ade) -> None:
    await with_people(app)
    async with app.worker():
        handle = await app.enqueue("agent:claude", {"prompt": "clean up [[defer]]"}, author="ann")
        held = await until(handle, lambda task: task.status is Status.REVIEWING)
        await voted(app, held, Decision.RESPOND, text="Leave the build alone.")
        report = await report_of(handle)

    assert "Do not make that call. bob did not approve: tool Bash. Response: Leave the build alone." in report


async def test_a_hook_says_no_to_what_is_forbidden_and_the_agent_goes_on_without_it(guarded: Ade) -> None:
    await apply(guarded, RULES.replace("demand", "deny"))
    async with guarded.worker():
        handle = await guarded.enqueue("agent:claude", {"prompt": "[[use-tool command=rm_-r_x]]"})

        assert await report_of(handle) == "deny: the tool Bash must not be used like this: removes files"


async def test_what_lies_in_an_agents_folder_does_not_answer_for_ade(guarded: Ade, tmp_path: Path) -> None:
    folder = tmp_path / "hostile"
    (folder / "ade").mkdir(parents=True)
    (folder / "ade" / "__init__.py").touch()
    (folder / "ade" / "cli.py").touch()  # exits with 0 and says nothing
    (folder / "click.py").write_text("raise SystemExit(0)")
    async with guarded.worker():
        arguments = {"prompt": "[[use-tool command=rm_-r_x]]", "cwd": str(folder)}
        handle = await guarded.enqueue("agent:claude", arguments, author="ann")

        asked = await until(handle, lambda task: task.status is Status.REVIEWING)
        assert asked.review is not None


async def test_people_are_shown_a_call_without_secrets_and_it_is_the_call_they_agree_to(
    guarded: Ade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sesame-open")
    async with guarded.worker():
        handle = await guarded.enqueue("agent:claude", {"prompt": "[[use-tool command=rm_sesame-open]]"}, author="ann")
        held = await until(handle, lambda task: task.status is Status.REVIEWING)
        await approved(guarded, held)
        ended = await handle.wait(timeout=60)

    assert "sesame" not in str(held.review)
    assert "[hidden]" in str(held.review)
    assert ended.status is Status.COMPLETED, ended.error


async def test_no_secret_makes_a_rule_blind(guarded: Ade, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a secret is hidden from people, but rules see the call as it is."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "rm -r build")
    async with guarded.worker():
        handle = await guarded.enqueue("agent:claude", {"prompt": "[[use-tool command=rm_-r_build]]"}, author="ann")
        held = await until(handle, lambda task: task.status is Status.REVIEWING)

    assert "rm -r build" not in str(held.review)
