"""The duties done on a timer, called by hand with a clock that stands still."""

import asyncio
import gzip
import os
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from ade import Status, Task
from ade.agents.conversations import rules as conversations_rules
from ade.failures import FailureKind, TaskError
from ade.settings import Settings
from ade.tasks import schedules
from ade.testing import TestClock
from ade.worker import sweep
from ade.worker.maintenance import MaintenanceJob, run_job, run_jobs, standard_jobs
from ade.worker.poller import fresh_ids
from ade.worker.sweep import archive_and_prune, write_archive
from tests.conformance.backends import sound
from tests.domain import (
    DONE,
    STOP,
    WORK,
    AfterFailure,
    ClaimRequest,
    DocumentWrite,
    Failed,
    Payloads,
    Review,
    Schedule,
    Stores,
    Succeeded,
    Worker,
    enqueue,
    open_stores,
    settle,
    unused,
    uuid7,
)

LEASE_MS = 30_000
WEEK_S = 604_800.0


@dataclass
class Scene:
    stores: Stores
    clock: TestClock
    payloads: Payloads

    async def add(self, **fields: Any) -> Task:
        known = {"id": uuid7(self.clock.now(), os.urandom(10)), "name": "work", "args": Raw(b"{}")}
        task = Task(**(known | fields))
        [stored] = await enqueue(self.stores, self.payloads, [task])
        return stored

    async def start(self, **fields: Any) -> Task:
        await self.add(**fields)
        request = ClaimRequest(worker_id="w1", run_ids=fresh_ids(1), names=frozenset({"work"}), lease_ms=LEASE_MS)
        [running] = await self.stores.tasks.claim(request)
        return running

    async def finish(self, **fields: Any) -> Task:
        running = await self.start(**fields)
        result = Succeeded(Raw(b'"done"'))
        await self.stores.tasks.commit(settle(running, result, now=self.clock.now(), randomness=0.5))
        return running

    async def fail(self, **fields: Any) -> Task:
        running = await self.start(**fields)
        error = TaskError(kind=FailureKind.UNRECOVERABLE, type="Unrecoverable", message="no")
        await self.stores.tasks.commit(settle(running, Failed(error), now=self.clock.now(), randomness=0.5))
        return running

    async def get(self, task: Task) -> Task:
        [found] = await self.stores.tasks.get([task.id])
        assert found is not None
        return found

    async def event_types(self, task: Task) -> list[str]:
        return [event.type for event in await self.stores.events.read(0, 100, task_id=task.id)]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = TestClock()
    async with sound(await open_stores("memory://", clock=clock)) as stores:
        yield Scene(stores, clock, Payloads(stores.blobs, inline_limit=100))


class TestLostLeases:
    async def test_a_task_whose_worker_went_silent_is_free_for_others_within_35_seconds(self, scene: Scene) -> None:
        task = await scene.start()
        scene.clock.advance(30)
        assert await sweep.settle_due(scene.stores) == 0
        scene.clock.advance(1)
        assert await sweep.settle_due(scene.stores) == 1
        assert (await scene.get(task)).status is Status.STALLED

    async def test_the_last_attempt_ends_as_a_dead_letter(self, scene: Scene) -> None:
        task = await scene.start(max_attempts=1)
        scene.clock.advance(31)
        await sweep.settle_due(scene.stores)
        buried = await scene.get(task)
        assert buried.error is not None
        assert (buried.status, buried.error.kind) == (Status.FAILED, FailureKind.WORKER_DIED)

    async def test_whoever_waits_is_woken(self, scene: Scene) -> None:
        wakeups = scene.stores.wakeups
        await scene.start()
        seen = {topic: wakeups.generation(topic) for topic in (WORK, STOP)}
        scene.clock.advance(31)
        await sweep.settle_due(scene.stores)
        assert all(wakeups.generation(topic) > seen[topic] for topic in seen)

    async def test_a_worker_that_renews_between_the_look_and_the_decision_keeps_its_task(self, scene: Scene) -> None:
        task = await scene.start()
        scene.clock.advance(31)
        due = await scene.stores.sweeps.due(10)
        worker = Worker(id="w1", hostname="here", pid=1, started_at=0, version="0")
        held = {str(task.run_id): task.id}
        await asyncio.to_thread(scene.stores.workers.renew, worker, held, lease_ms=LEASE_MS)
        assert await sweep.stall_lost(scene.stores, due.expired) == 0
        assert (await scene.get(task)).status is Status.RUNNING

    async def test_two_processes_that_sweep_at_once_stall_a_task_once(self, scene: Scene) -> None:
        task = await scene.start()
        scene.clock.advance(31)
        counts = await asyncio.gather(*(sweep.settle_due(scene.stores) for _ in range(3)))
        assert sum(counts) == 1
        assert (await scene.event_types(task)).count("task.stalled") == 1

    async def test_a_wall_clock_that_jumps_takes_no_lease_away(self, scene: Scene) -> None:
        await scene.start()
        scene.clock.jump_wall(3600)
        assert await sweep.settle_due(scene.stores) == 0


async def test_a_task_past_its_deadline_fails_and_those_who_wait_hear_of_it(scene: Scene) -> None:
    task = await scene.add(deadline=scene.clock.now() + 5_000)
    seen = scene.stores.wakeups.generation(DONE)
    scene.clock.advance(6)
    await sweep.settle_due(scene.stores)
    failed = await scene.get(task)
    assert failed.error is not None
    assert (failed.status, failed.error.kind) == (Status.FAILED, FailureKind.DEADLINE_PASSED)
    assert scene.stores.wakeups.generation(DONE) > seen


async def test_a_whole_chain_behind_a_lost_task_is_settled_in_one_sweep(scene: Scene) -> None:
    first = await scene.start(max_attempts=1)
    second = await scene.add(depends_on=(first.id,), after_failure=AfterFailure.FAIL)
    third = await scene.add(depends_on=(second.id,))
    scene.clock.advance(31)
    assert await sweep.settle_due(scene.stores) == 3
    assert (await scene.get(second)).status is Status.FAILED
    assert (await scene.get(third)).status is Status.CANCELLED


class TestRetention:
    async def prune(self, scene: Scene, folder: Path | None = None, batch: int = 100) -> int:
        return await archive_and_prune(
            scene.stores,
            scene.payloads,
            retention_s=WEEK_S,
            dead_letter_retention_s=2 * WEEK_S,
            governed_retention_s=3 * WEEK_S,
            archive_dir=folder,
            batch=batch,
        )

    async def test_dead_letters_nobody_has_dealt_with_are_kept_longer(self, scene: Scene) -> None:
        letter = await scene.fail()
        scene.clock.advance(WEEK_S + 1)
        assert await self.prune(scene) == 0
        scene.clock.advance(WEEK_S)
        assert await self.prune(scene) == 1
        assert await scene.stores.tasks.get([letter.id]) == [None]

    @pytest.mark.parametrize(
        "review", [Review(required=("usual",)), Review(policies=("two",)), Review(has_preview=True)]
    )
    async def test_tasks_that_needed_approval_are_kept_longest(self, scene: Scene, review: Review) -> None:
        governed, letter = await scene.finish(review=review), await scene.fail(review=review)
        plain = await scene.finish(review=Review(not_before=1, not_after=2))  # a window alone needs no approval
        for pruned in (1, 0, 2):
            scene.clock.advance(WEEK_S + 1)
            assert await self.prune(scene) == pruned
        assert await scene.stores.tasks.get([governed.id, letter.id, plain.id]) == [None, None, None]

    async def test_finished_tasks_go_after_a_week_and_not_before(self, scene: Scene) -> None:
        task = await scene.finish()
        unfinished = await scene.add()
        scene.clock.advance(WEEK_S)
        assert await self.prune(scene) == 0
        scene.clock.advance(1)
        assert await self.prune(scene) == 1
        assert await scene.stores.tasks.get([task.id]) == [None]
        assert (await scene.get(unfinished)).status is Status.PENDING

    async def test_they_are_archived_whole_before_they_go(self, scene: Scene, tmp_path: Path) -> None:
        args = msgspec.json.encode({"text": "x" * 500})
        task = await scene.finish(args=Raw(args))
        scene.clock.advance(WEEK_S + 1)
        assert await self.prune(scene, tmp_path / "archive") == 1

        [file] = (tmp_path / "archive").iterdir()
        [line] = gzip.decompress(file.read_bytes()).splitlines()
        archived = msgspec.json.decode(line, type=Task)
        assert (archived.id, archived.status) == (task.id, Status.COMPLETED)
        assert archived.arguments() == {"text": "x" * 500}
        assert archived.result == Raw(b'"done"')

    async def test_a_crash_between_archive_and_prune_repeats_the_same_file(self, scene: Scene, tmp_path: Path) -> None:
        await scene.finish()
        scene.clock.advance(WEEK_S + 1)
        tasks = await scene.stores.sweeps.finished_before(scene.clock.now(), 10)
        once = await write_archive(tmp_path, tasks, scene.payloads)
        content = once.read_bytes()
        assert await write_archive(tmp_path, tasks, scene.payloads) == once
        assert once.read_bytes() == content
        assert list(tmp_path.iterdir()) == [once]

    async def test_large_payloads_are_archived_one_after_the_other(self, scene: Scene, tmp_path: Path) -> None:
        size, count = 2_000_000, 10
        for _ in range(count):
            await scene.finish(args=Raw(msgspec.json.encode({"text": "x" * size})))
        scene.clock.advance(WEEK_S + 1)
        tracemalloc.start()
        try:
            assert await self.prune(scene, tmp_path) == count
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < size * count / 2

    async def test_many_go_in_portions_past_those_that_others_wait_for(
        self, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sweep, "_PORTION", 2)
        error = TaskError(kind=FailureKind.UNRECOVERABLE, type="Unrecoverable", message="no")
        for _ in range(2):
            awaited = await scene.start()
            await scene.add(depends_on=(awaited.id,))
            await scene.stores.tasks.commit(settle(awaited, Failed(error), now=scene.clock.now(), randomness=0.5))
            scene.clock.advance(1)
        for _ in range(5):
            await scene.finish()
        scene.clock.advance(2 * WEEK_S + 1)
        assert await self.prune(scene, tmp_path, batch=6) == 4
        assert await self.prune(scene, tmp_path, batch=6) == 1
        await sweep.settle_due(scene.stores)
        assert await self.prune(scene, tmp_path) == 2

    async def test_a_folder_that_cannot_be_written_keeps_the_tasks(self, scene: Scene, tmp_path: Path) -> None:
        task = await scene.finish()
        scene.clock.advance(WEEK_S + 1)
        in_the_way = tmp_path / "file"
        in_the_way.touch()
        with pytest.raises(OSError, match="file"):
            await self.prune(scene, in_the_way)
        assert (await scene.get(task)).status is Status.COMPLETED

    async def test_results_go_after_their_time_and_the_record_stays(self, scene: Scene) -> None:
        task = await scene.finish(result_ttl_ms=1_000)
        scene.clock.advance(2)
        assert await sweep.expire_results(scene.stores) == 1
        kept = await scene.get(task)
        assert (kept.status, kept.result, kept.result_expired) == (Status.COMPLETED, None, True)

    async def test_documents_go_after_their_time(self, scene: Scene) -> None:
        session = DocumentWrite(kind="session", id="s1", body=Raw(b"{}"), expires_at=scene.clock.now() + 1_000)
        await scene.stores.documents.write([session])
        assert await sweep.expire_documents(scene.stores) == 0
        scene.clock.advance(2)
        assert await sweep.expire_documents(scene.stores) == 1

    async def test_empty_inboxes_go_after_their_time(self, scene: Scene) -> None:
        await scene.stores.inboxes.write(conversations_rules.bind(unused("conv-1"), "agent:coder"))

        scene.clock.advance(WEEK_S - 1)
        assert await sweep.forget_inboxes(scene.stores, retention_s=WEEK_S) == 0
        scene.clock.advance(2)
        assert await sweep.forget_inboxes(scene.stores, retention_s=WEEK_S) == 1
        assert await scene.stores.inboxes.list_inboxes("", 10) == []

    async def test_events_stay_until_every_reader_has_passed_and_their_task_is_gone(self, scene: Scene) -> None:
        await scene.finish()
        scene.clock.advance(WEEK_S + 1)
        await scene.stores.events.advance("audit", 1)
        await self.prune(scene)
        assert await sweep.trim_events(scene.stores, retention_s=WEEK_S) == 1
        await scene.stores.events.advance("audit", await scene.stores.events.last_seq())
        assert await sweep.trim_events(scene.stores, retention_s=WEEK_S) > 0
        assert await scene.stores.events.read(0, 10) == []


class TestDuties:
    def jobs(self, scene: Scene) -> dict[str, MaintenanceJob]:
        made = standard_jobs(scene.stores, scene.payloads, Settings())
        return {duty.name: duty for duty in made}

    async def test_all_of_them_can_be_done_on_an_empty_store(self, scene: Scene) -> None:
        for duty in self.jobs(scene).values():
            assert await run_job(scene.stores.sweeps, duty, "me") == 0

    async def test_schedules_fire_once_however_many_processes_do_the_duty(self, scene: Scene) -> None:
        await schedules.put(scene.stores, Schedule(name="hourly", cron="0 * * * *", task_name="work"))
        scene.clock.advance(3600)
        duty = self.jobs(scene)["schedules"]
        await asyncio.gather(*(run_job(scene.stores.sweeps, duty, f"process {n}") for n in range(3)))
        await asyncio.gather(*(duty.perform() for _ in range(3)))
        assert [tally.count for tally in await scene.stores.queues.tallies()] == [1]

    async def test_a_duty_is_one_processs_until_it_falls_silent(self, scene: Scene) -> None:
        done: list[str] = []

        def duty(holder: str) -> MaintenanceJob:
            async def perform() -> int:
                done.append(holder)
                return 0

            return MaintenanceJob(name="count", every_s=10, perform=perform)

        await run_job(scene.stores.sweeps, duty("a"), "a")
        await run_job(scene.stores.sweeps, duty("b"), "b")
        scene.clock.advance(10)
        await run_job(scene.stores.sweeps, duty("a"), "a")
        scene.clock.advance(16)
        await run_job(scene.stores.sweeps, duty("b"), "b")
        assert done == ["a", "a", "b"]

    async def test_a_duty_that_fails_stops_neither_itself_nor_the_others(self, scene: Scene) -> None:
        tries, other_done = 0, asyncio.Event()

        async def fail() -> int:
            nonlocal tries
            tries += 1
            raise ZeroDivisionError

        async def other() -> int:
            if tries >= 2:
                other_done.set()
            return 0

        jobs = [
            MaintenanceJob(name="bad", every_s=0.001, perform=fail),
            MaintenanceJob(name="good", every_s=0.001, perform=other),
        ]
        job = asyncio.create_task(run_jobs(scene.stores.sweeps, jobs, "me"))
        await asyncio.wait_for(other_done.wait(), 60)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        assert tries >= 2

    async def test_after_the_store_was_blocked_renewals_come_before_judgements(self, scene: Scene) -> None:
        moments = iter([0.0, 12.0, 12.0, 20.0, 20.1])
        await scene.start()
        scene.clock.advance(31)
        duty = self.jobs(scene)["settle"]
        assert await run_job(scene.stores.sweeps, duty, "me", clock=lambda: next(moments)) == 0
        assert await run_job(scene.stores.sweeps, duty, "me", clock=lambda: next(moments)) == 1

    async def test_a_process_whose_own_renewals_are_late_judges_nobody(self, scene: Scene) -> None:
        late = True
        jobs = standard_jobs(scene.stores, scene.payloads, Settings(), may_judge_leases=lambda: not late)
        settle_duty = next(duty for duty in jobs if duty.name == "settle")
        await scene.start()
        scene.clock.advance(31)
        assert await run_job(scene.stores.sweeps, settle_duty, "me") == 0
        late = False
        assert await run_job(scene.stores.sweeps, settle_duty, "me") == 1

    async def test_workers_long_gone_are_forgotten(self, scene: Scene) -> None:
        worker = Worker(id="old", hostname="here", pid=1, started_at=0, version="0")
        await scene.stores.workers.register(worker, [], ttl_ms=1_000)
        scene.clock.advance(3600)
        assert await sweep.forget_silent_workers(scene.stores) == 1
        assert await scene.stores.workers.list_workers() == []
