"""Workers that are killed, stopped, blocked or told to stop, in real time with short leases."""

import os
import signal
import sys
import time

import pytest

from ade import Status, Task
from ade.failures import FailureKind
from ade.tasks import service as tasks_service
from tests.domain import FINAL_EVENTS
from tests.faults.workers import Site, is_alive, until
from tests.worker.harness import plain

pytestmark = [pytest.mark.faults]

PATIENT = {"lease_s": 30.0}  # for those who lose nothing in the story, however long the machine makes them wait
MOST_TRIES = 5  # of what must be quick, on a machine that may be slow for a while


async def final_events(site: Site, task: Task) -> list[str]:
    return [kind for kind in await site.event_types(task) if kind in FINAL_EVENTS]


async def test_the_task_of_a_killed_worker_runs_again_elsewhere(site: Site) -> None:
    doomed = await site.worker()
    task = await site.enqueue("first_time_hangs")
    await site.until_noted("began")
    doomed.send(signal.SIGKILL)
    await site.worker(**PATIENT)
    final = await site.final(task)

    assert (final.attempt, plain(final.result)) == (2, "attempt 2")
    assert await final_events(site, task) == ["task.succeeded"]
    kinds = await site.event_types(task)
    assert "task.stalled" in kinds
    assert "task.reclaimed" in kinds


async def run_past_its_lease(site: Site, name: str) -> tuple[Task, Task]:
    """A worker is suspended in a run of this handler and resumed after another worker has run the task.

    Returns the task as it was enqueued and as the other worker left it.
    """
    suspended = await site.worker()
    go_on = site.folder / "go-on"
    task = await site.enqueue(name, {"until": str(go_on)})
    await site.until_noted("began")
    await site.suspend(suspended)
    await site.worker(**PATIENT)
    final = await site.final(task)
    go_on.touch()
    suspended.send(signal.SIGCONT)
    await until(
        lambda: "task.stopped" in suspended.log() or "task.result_thrown_away" in suspended.log(), "the late run ends"
    )
    return task, final


async def test_a_worker_stopped_past_its_lease_is_refused_when_it_comes_back(site: Site) -> None:
    """The guardian does not keep a suspended worker's tasks."""
    task, final = await run_past_its_lease(site, "slow_when_continued")

    assert plain(final.result) == "attempt 2"
    assert await final_events(site, task) == ["task.succeeded"]
    assert plain((await site.get(task)).result) == "attempt 2"


async def test_a_worker_stopped_past_its_lease_performs_no_effect_when_it_comes_back(site: Site) -> None:
    _, final = await run_past_its_lease(site, "pays_when_continued")

    assert plain(final.result) == "attempt 2"
    assert site.noted("paid") == []


@pytest.mark.parametrize("fault", ["hold_the_interpreter", "block_the_loop"])
@pytest.mark.long
async def test_a_handler_that_blocks_everything_for_longer_than_the_lease_runs_once(site: Site, fault: str) -> None:
    for _ in range(2):
        await site.worker(lease_s=8.0, heartbeat_s=0.8)
    task = await site.enqueue(fault, {"seconds": 13.0})
    final = await site.final(task)

    assert (final.status, final.attempt) == (Status.COMPLETED, 1)
    assert len(site.noted("began")) == 1


@pytest.mark.long
async def test_without_a_guardian_a_held_interpreter_costs_the_lease_but_never_a_second_final_event(site: Site) -> None:
    """What the guardian is there for; fencing holds either way."""
    for _ in range(2):
        await site.worker(guarded=False, lease_s=3.0)
    task = await site.enqueue("hold_the_interpreter", {"seconds": 10.0, "database": site.database}, max_attempts=1)
    await site.until_noted("began")
    final = await site.final(task)

    assert final.error is not None
    assert final.error.kind is FailureKind.WORKER_DIED
    await site.until_noted("ended")
    assert await final_events(site, task) == ["task.failed"]


@pytest.mark.long
async def test_a_run_past_its_time_out_is_not_guarded_for_ever(site: Site) -> None:
    for _ in range(2):
        await site.worker(lease_s=3.0)
    task = await site.enqueue(
        "hold_the_interpreter", {"seconds": 600.0, "database": site.database}, timeout_ms=200, max_attempts=1
    )
    await site.until_noted("began")
    final = await site.final(task)

    assert final.error is not None
    assert final.error.kind is FailureKind.WORKER_DIED
    assert site.noted("ended") == []


@pytest.mark.parametrize("point", ["claimed", "performed", "committed"])
async def test_a_worker_that_dies_at_any_point_loses_nothing_and_repeats_no_final_event(site: Site, point: str) -> None:
    doomed = await site.worker(die_at=point, lease_s=4.0)
    task = await site.enqueue("quick")
    await doomed.exit_code()
    await site.worker(**PATIENT)
    final = await site.final(task)

    assert final.status is Status.COMPLETED
    assert await final_events(site, task) == ["task.succeeded"]
    assert len(site.noted("ran")) == (2 if point == "performed" else 1)


async def test_a_task_that_kills_its_worker_ends_as_a_dead_letter(site: Site) -> None:
    task = await site.enqueue("crash", max_attempts=2)
    for _ in range(2):
        doomed = await site.worker(lease_s=3.0)
        assert await doomed.exit_code() == 9
    await site.worker()
    final = await site.final(task)

    assert final.error is not None
    assert (final.status, final.error.kind, final.attempt) == (Status.FAILED, FailureKind.WORKER_DIED, 2)
    assert len(site.noted("began")) == 2


async def test_sigterm_hands_unfinished_work_back_without_using_an_attempt(site: Site) -> None:
    worker = await site.worker(grace_s=0.2, **PATIENT)
    task = await site.enqueue("wait_async")
    await site.until_noted("began")
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    assert "handed back 1" in worker.log()
    assert site.noted("ended") == [worker.pid]
    found = await site.get(task)
    assert (found.status, found.attempt, found.worker_id) == (Status.PENDING, 0, None)
    assert (await site.event_types(task))[-1] == "task.released"
    assert await site.stores.workers.list_workers() == []


async def test_a_second_signal_does_not_wait_for_the_grace_period(site: Site) -> None:
    worker = await site.worker(grace_s=600, **PATIENT)
    await site.enqueue("wait_async")
    await site.until_noted("began")
    worker.send(signal.SIGTERM)
    await until(lambda: "worker.draining" in worker.log(), "the worker drains")
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0  # it is not waited for as long as that
    assert "handed back 1" in worker.log()


@pytest.mark.parametrize("name", ["wait_async", "wait_in_thread", "wait_in_process"])
async def test_a_cancellation_from_another_process_arrives_within_a_second(site: Site, name: str) -> None:
    """And not with the next beat, which is a minute away."""
    await site.worker(lease_s=300, heartbeat_s=60)
    took = [await time_to_cancel(site, name, 1)]
    while min(took) >= 1.0 and len(took) < MOST_TRIES:
        took.append(await time_to_cancel(site, name, len(took) + 1))

    assert min(took) < 1.0, took


async def time_to_cancel(site: Site, name: str, number: int) -> float:
    """The seconds until the run of a new task, the `number`th, hears that it is cancelled."""
    task = await site.enqueue(name)
    await site.until_noted("began", number)
    pid = site.noted("began")[-1]
    await tasks_service.cancel(site.stores, task.id, "enough")
    cancelled = time.monotonic()
    if name == "wait_in_process":
        await until(lambda: not is_alive(pid), "the process is killed", within_s=50)
    else:
        await until(lambda: len(site.noted("ended")) == number, "the handler hears of it", within_s=50)
    took = time.monotonic() - cancelled

    assert (await site.get(task)).status is Status.CANCELLED
    assert await final_events(site, task) == ["task.cancelled"]
    return took


async def test_nothing_survives_a_killed_worker(site: Site) -> None:
    worker = await site.worker()
    await site.enqueue("wait_in_process")
    await site.until_noted("began")
    children = worker.children()
    assert len(children) >= 2  # the guardian and the handler's process
    worker.send(signal.SIGKILL)
    await until(lambda: not any(is_alive(child) for child in children), "its children are gone")


async def test_a_supervisor_starts_a_killed_process_again_and_ends_all_of_them(site: Site) -> None:
    supervision = await site.supervised(count=2)
    killed, kept = sorted(supervision.workers())
    os.kill(killed, signal.SIGKILL)
    await until(lambda: killed not in supervision.workers() and len(supervision.workers()) == 2, "two again")
    workers = supervision.workers()
    supervision.process.terminate()

    assert await supervision.exit_code() == 0
    assert kept in workers
    assert not any(is_alive(pid) for pid in workers)


async def test_workers_do_not_outlive_a_killed_supervisor(site: Site) -> None:
    supervision = await site.supervised(count=2)
    workers = supervision.workers()
    assert [is_alive(pid) for pid in workers] == [True, True]
    supervision.process.kill()
    await until(lambda: not any(is_alive(pid) for pid in workers), "the workers end")


async def test_a_supervisor_gives_up_when_its_processes_die_again_and_again(site: Site) -> None:
    supervision = site.supervise([sys.executable, "-c", "import sys; sys.exit(1)"], 1)
    assert await supervision.exit_code() == 3
