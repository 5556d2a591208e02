"""Several processes on one file: they wait for each other, wake each other and never meet a lock error."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ade import Status
from ade.errors import StoreUnavailable
from ade.stores.sqlite.tasks import SqliteTasks
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.domain import WORK
from tests.stores.sqlite.conftest import OpenStore
from tests.stores.sqlite.processes import answer_of, command, line_of, started


async def test_while_another_process_holds_the_lock_calls_wait_and_the_loop_goes_on(scene: Scene, path: Path) -> None:
    running = await scene.start()
    with started(command("hold_lock", path)) as holder:
        assert line_of(holder) == "held"
        waiting: list[asyncio.Task[object]] = [
            asyncio.create_task(scene.add()),
            asyncio.create_task(scene.succeed(running)),
            asyncio.create_task(asyncio.to_thread(scene.renew)),
        ]
        for _ in range(100):
            assert (await scene.stores.tasks.get([running.id])) != [None]  # who reads does not wait
        assert not any(task.done() for task in waiting)
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        await asyncio.gather(*waiting)

    assert await scene.status(running.id) == Status.COMPLETED


async def test_two_stores_on_one_file_see_each_other(open_store: OpenStore, clock: TestClock) -> None:
    one, two = Scene(await open_store(clock), clock), Scene(await open_store(clock), clock)
    tasks = await one.add_many(20)

    claims = await asyncio.gather(*(scene.claim(3, worker=f"w{n}") for n in range(5) for scene in (one, two)))

    assert sorted(task.id for claim in claims for task in claim) == sorted(task.id for task in tasks)
    assert await two.counts() == {"running": 20}


@pytest.mark.slow
async def test_processes_under_load_meet_no_lock_error(open_store: OpenStore, path: Path, clock: TestClock) -> None:
    stores = await open_store(clock)

    def run(name: str) -> int:
        return int(answer_of(command("work", path, name, 40)))

    with ThreadPoolExecutor(3) as pool:
        finished = sum(pool.map(run, ("a", "b", "c")))

    counts = await Scene(stores, clock).counts()
    assert counts.get("completed") == finished
    assert sum(counts.values()) == 3 * 40 * 5
    assert await stores.maintenance.check_invariants() == []


def test_a_fork_of_an_open_store_is_refused_in_the_child_and_harms_nothing_in_the_parent(path: Path) -> None:
    said = answer_of(command("fork", path)).split()

    assert said == [
        "add:store_unsupported",
        "read:store_unsupported",
        "renew:store_unsupported",
        "close:store_unsupported",
        "parent:fine",
    ]


async def test_a_hint_wakes_another_process(open_store: OpenStore, path: Path) -> None:
    stores = await open_store()
    with started(command("wait_for_hint", path)) as waiter:
        assert line_of(waiter) == "ready"
        stores.wakeups.notify(WORK)

        assert line_of(waiter) == "rung"


async def at_once(scene: Scene, *calls: Coroutine[Any, Any, object]) -> None:
    """All of them ask while the writer has something else to do, however fast it is or slow they are."""
    assert isinstance(scene.stores.tasks, SqliteTasks)
    gate = threading.Event()
    busy = asyncio.create_task(scene.stores.tasks._writer.call(lambda _: gate.wait(60)))
    asking = [asyncio.create_task(call) for call in calls]
    for _ in range(10):
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(busy, *asking)


async def test_many_callers_at_once_share_few_transactions(scene: Scene) -> None:
    assert isinstance(scene.stores.tasks, SqliteTasks)
    commits = 0

    def count() -> bool:
        nonlocal commits
        commits += 1
        return False  # go on with the commit

    await scene.stores.tasks._writer.call(lambda connection: connection.set_commit_hook(count))
    commits = 0
    await at_once(scene, *(scene.add() for _ in range(200)))
    adding = commits
    running = await scene.claim(200)
    commits = 0
    await at_once(scene, *(scene.succeed(task) for task in running))

    assert adding <= 20
    assert commits <= 20
    assert await scene.counts() == {"completed": 200}


async def test_what_was_asked_for_before_the_end_is_done_and_what_comes_later_is_refused(
    open_store: OpenStore, clock: TestClock
) -> None:
    scene = Scene(await open_store(clock), clock)

    async def add_after(turns: int) -> bool:
        for _ in range(turns):
            await asyncio.sleep(0)
        try:
            await scene.add()
        except StoreUnavailable:
            return False
        return True

    adding = [asyncio.create_task(add_after(turns % 10)) for turns in range(200)]
    await asyncio.sleep(0)
    await scene.stores.close()
    kept = await asyncio.wait_for(asyncio.gather(*adding), 60)

    again = Scene(await open_store(clock), clock)
    assert (await again.counts()).get("pending", 0) == sum(kept)


async def test_a_caller_that_gives_up_waiting_hurts_nobody(scene: Scene) -> None:
    impatient = [asyncio.create_task(scene.add()) for _ in range(20)]
    await asyncio.sleep(0)
    for task in impatient[::2]:
        task.cancel()

    answers = await asyncio.gather(*impatient, return_exceptions=True)

    assert sum(isinstance(answer, asyncio.CancelledError) for answer in answers) == 10
    await scene.add()
