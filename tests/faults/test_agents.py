"""A worker is killed while an agent runs for it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ade import Ade, ItemKind, Status
from ade.agents.runs.model import result_in
from tests.agents.runs.fake_agent_app import app as house
from tests.agents.runs.test_interrupted_runs import hanging, is_alive
from tests.agents.runs.test_runs import transcripts_of
from tests.faults.programs import Stage, stage
from tests.faults.workers import until
from tests.waiting import eventually, time_until

pytestmark = [pytest.mark.faults]

PROMISE_S = 2.0


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


@pytest.mark.parametrize("agent_type", ["claude", "letta"])
async def test_nothing_of_a_killed_workers_agent_goes_on_and_its_task_runs_again_and_is_told_of_once(
    programs: Stage, tmp_path: Path, agent_type: str
) -> None:
    """The agent ignores SIGTERM and has a child that does so too; the first time it hangs."""
    prompt = f"hi [[fork]] [[ignore-sigterm]] [[hang once={tmp_path / 'hung'}]]"
    async with house(tmp_path) as app:
        killed = programs.start("killed", "tests.faults.agent_worker", str(tmp_path), "3")
        handle = await app.agents.run(agent_type, prompt, parent_conversation="boss", description="a job")
        processes = await hanging(app, handle)

        killed.send(signal.SIGKILL)
        took = await time_until(lambda: not any(is_alive(pid) for pid in processes), "all of it is gone")
        programs.start("heir", "tests.faults.agent_worker", str(tmp_path), "30")
        ended = await handle.wait(timeout=90)
        inbox = await app.agents.conversation("boss")
        await eventually_told(app)

        assert len(processes) == 2
        assert took < PROMISE_S
        assert ended.status is Status.COMPLETED
        assert ended.attempt == 2
        first, second = (path.read_text() for path in transcripts_of(app, ended))
        assert first == f"[Task started: a job]\n[subagent_type: {agent_type}]\n\n"  # cut off where it was
        assert second.endswith("You said: hi\n\n[Task completed]\n")
        [item] = await inbox.peek()
        assert item.kind is ItemKind.TASK_NOTIFICATION
        assert f"<task-id>{handle.id}</task-id>\n<status>completed</status>" in (item.text or "")
        result = result_in(ended.result)
        assert result is not None
        assert f"Full transcript available at: {result.output_file}" in (item.text or "")


async def eventually_told(app: Ade) -> None:
    """Until no task is left that tells."""
    opened = await app.open()

    async def is_over() -> bool:
        tallies = await opened.stores.queues.tallies()
        return any(tally.name == "agents:notify" and tally.status is Status.COMPLETED for tally in tallies)

    await eventually(is_over)


async def test_a_frozen_workers_agent_does_not_go_on_beside_the_next_attempt(programs: Stage, tmp_path: Path) -> None:
    """A worker that is stopped cannot end its agent; who watches over that does, when the lease is over."""
    async with house(tmp_path) as app:
        frozen = programs.start("frozen", "tests.faults.agent_worker", str(tmp_path), "3")
        handle = await app.agents.run("claude", f"hi [[fork]] [[hang once={tmp_path / 'hung'}]]")
        processes = await hanging(app, handle)

        frozen.send(signal.SIGSTOP)
        await until(lambda: not any(is_alive(pid) for pid in processes), "all of it is gone")
        programs.start("heir", "tests.faults.agent_worker", str(tmp_path), "30")
        ended = await handle.wait(timeout=90)
        frozen.send(signal.SIGCONT)

        assert ended.status is Status.COMPLETED
        assert ended.attempt == 2


@pytest.mark.slow
async def test_a_hundred_megabytes_of_output_take_no_more_memory_than_a_few_lines(
    programs: Stage, tmp_path: Path
) -> None:
    async with house(tmp_path) as app:
        worker = programs.start("worker", "tests.faults.agent_worker", str(tmp_path), "30")
        await (await app.agents.run("claude", "hi [[flood bytes=100000 line=1000]]")).wait(timeout=90)
        before = peak_of(worker.pid)
        handle = await app.agents.run("claude", "hi [[flood bytes=100000000 line=1000]]", max_attempts=1)
        ended = await handle.wait(timeout=180)

        result = result_in(ended.result)
        assert result is not None, ended.error
        assert result.report == "You said: hi"
        assert peak_of(worker.pid) - before < 24 * 1024  # kB
        [printed] = transcripts_of(app, ended)[0].parent.glob("*.out")
        assert 16 * 2**20 <= printed.stat().st_size <= 16 * 2**20 + 100  # what is kept of it, and a mark


def peak_of(pid: int) -> int:
    """The most memory a process ever had, in kB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])
