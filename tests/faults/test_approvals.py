"""Workers on approved tasks die between any two writes: what is approved runs once, what is not waits."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import msgspec
import pytest
from msgspec import Raw

from ade import Status, Task
from ade.approvals import service as approvals_service
from ade.approvals.submission import admitted, follow_up
from ade.failures import Backoff
from tests.depth import sampled
from tests.domain import (
    FINAL_EVENTS,
    ApprovalProof,
    Decision,
    Payloads,
    Review,
    Rulebook,
    TaskQuery,
    User,
    VoteRequest,
    add_user,
    enqueue,
    uuid7,
)
from tests.faults.workers import PATIENCE_S, ROOT, Site
from tests.waiting import eventually

pytestmark = [pytest.mark.faults]
PREVIEWED = Review(has_preview=True)


class Scenario:
    """One doomed worker, then as many that live as it takes; bob agrees to whatever he is asked."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.processes: list[subprocess.Popen[bytes]] = []

    def worker(self, die_at: int = 0, *, before: bool = False) -> None:
        options = {"url": self.site.url, "die_at": die_at, "before": before}
        command = [sys.executable, "-m", "tests.faults.approval_program", msgspec.json.encode(options).decode()]
        with (self.site.folder / f"worker-{len(self.processes)}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT))

    async def has_died(self) -> bool:
        """The one that was to."""
        return await asyncio.to_thread(self.processes[0].wait, PATIENCE_S) == -signal.SIGKILL

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    async def enqueue(self, name: str, **fields: object) -> Task:
        stores, payloads = self.site.stores, Payloads(self.site.stores.blobs)
        task = Task(
            id=uuid7(stores.clock.now(), os.urandom(10)),
            name=name,
            args=Raw(msgspec.json.encode({"journal": str(self.site.journal)})),
            author_id="ada",
            backoff=Backoff(base_ms=0, cap_ms=0),
            **fields,  # type: ignore[arg-type]  # any field, by its name
        )
        stored = await enqueue(stores, payloads, await admitted(stores, payloads, [task], Rulebook()))
        await follow_up(stores, payloads, stored)
        return stored[0]

    async def play(self, task: Task) -> Task:
        """Until the task is final."""

        async def look() -> Task | None:
            found = await self.site.get(task)
            if found.is_final:
                return found
            if all(process.poll() is not None for process in self.processes):
                self.worker()
            gate = found.review.gate if found.review is not None else None
            if gate is not None and found.status is Status.REVIEWING:
                ballot = VoteRequest(voter="bob", decision=Decision.APPROVE, approval=gate.id, digest=gate.digest)
                await approvals_service.vote(self.site.stores, task.id, ballot)
            return None

        return await eventually(look, PATIENCE_S)

    async def check_log(self, task: Task) -> None:
        """One end, and nothing that was not approved."""
        proof = ApprovalProof()
        events = await self.site.stores.events.read(0, 10_000)
        assert [complaint for event in events if (complaint := proof.add(event))] == []
        ends = [event.type for event in events if event.task_id == task.id and event.type in FINAL_EVENTS]
        assert len(ends) == 1


@pytest.fixture
async def scenario(site: Site) -> AsyncIterator[Scenario]:
    await add_user(site.stores, User(id="ada"))
    await add_user(site.stores, User(id="bob", roles=frozenset({"reviewer"})))
    made = Scenario(site)
    yield made
    made.end()


Moment = tuple[int, bool]


def moments(writes: int, *, claims: set[int]) -> list[Moment]:
    """After each write of a story, and before each that is no claim."""
    numbers = range(1, writes + 1)
    return [*((number, False) for number in numbers), *((number, True) for number in numbers if number not in claims)]


def names(moment: Moment) -> str:
    return f"{'before' if moment[1] else 'after'}-{moment[0]}"


@pytest.mark.parametrize("moment", sampled(moments(5, claims={1, 4}), quick=2), ids=names)
async def test_preview_approval_and_run_survive_any_death(scenario: Scenario, moment: Moment) -> None:
    task = await scenario.enqueue("deploy", review=PREVIEWED)
    scenario.worker(moment[0], before=moment[1])
    final = await scenario.play(task)

    assert (final.status, await scenario.has_died()) == (Status.COMPLETED, True)
    assert len(scenario.site.noted("ran")) == 1
    await scenario.check_log(task)


@pytest.mark.parametrize("moment", sampled(moments(4, claims={1, 3}), quick=2), ids=names)
async def test_a_held_run_survives_any_death(scenario: Scenario, moment: Moment) -> None:
    task = await scenario.enqueue("careful")
    scenario.worker(moment[0], before=moment[1])
    final = await scenario.play(task)

    assert (final.status, await scenario.has_died()) == (Status.COMPLETED, True)
    assert [len(scenario.site.noted(word)) for word in ("first", "ran")] == [1, 1]
    await scenario.check_log(task)


@pytest.mark.parametrize("moment", sampled(moments(5, claims={1, 4}), quick=2), ids=names)
async def test_a_failure_is_undone_once_whoever_dies(scenario: Scenario, moment: Moment) -> None:
    task = await scenario.enqueue("clumsy", rollback="automatic", max_attempts=1)
    scenario.worker(moment[0], before=moment[1])
    await scenario.play(task)
    page = await scenario.site.stores.tasks.find(TaskQuery(parent_id=task.id, limit=10))
    [rollback] = page.tasks
    undone = await scenario.play(rollback)

    assert (await scenario.site.get(task)).status is Status.FAILED
    assert (undone.status, await scenario.has_died()) == (Status.COMPLETED, True)
    assert len(scenario.site.noted("undone")) == 1
    assert len(scenario.site.noted("ran")) <= 1  # it may have died before it began


async def test_nobody_agrees_and_so_nothing_runs_whoever_dies(scenario: Scenario) -> None:
    task = await scenario.enqueue("deploy", review=PREVIEWED)
    scenario.worker(1)
    await asyncio.to_thread(scenario.processes[0].wait, PATIENCE_S)
    scenario.worker()

    async def is_asked() -> bool:
        return (await scenario.site.get(task)).status is Status.REVIEWING

    await eventually(is_asked)
    assert scenario.site.noted("ran") == []
