"""What a worker can do: its own capabilities and those of its agent decide which tasks it is given."""

import asyncio

import pytest

from ade import Status, Task
from ade.agents import registry
from tests.domain import Agent, ClaimRequest, Stores, Worker
from tests.waiting import eventually
from tests.worker.harness import Workshop, soon

CODER = "coder-1"


async def nothing() -> None: ...


async def known_worker(stores: Stores) -> Worker:
    [worker] = await stores.workers.list_workers()
    return worker


async def test_a_task_waits_for_a_worker_that_can_do_it(workshop: Workshop) -> None:
    workshop.handle(nothing)
    asking = await workshop.enqueue("nothing", needs=("gpu",))
    async with workshop.worker(capabilities=("net",)):
        await workshop.final(await workshop.enqueue("nothing"))
        assert (await workshop.get(asking)).status is Status.PENDING

    async with workshop.worker(capabilities=("net", "gpu")):
        assert (await workshop.final(asking)).status is Status.COMPLETED
        assert (await known_worker(workshop.stores)).capabilities == ("gpu", "net")


async def test_new_work_for_others_does_not_keep_a_worker_busy(workshop: Workshop) -> None:
    """It looks once when it is told, and then rests: nothing it can do has come."""
    claims = 0
    looked = asyncio.Event()

    async def claim(request: ClaimRequest) -> list[Task]:
        nonlocal claims
        claims += 1
        looked.set()
        return await workshop.stores.tasks.claim(request)

    workshop.handle(nothing)
    async with workshop.worker(stores=workshop.with_tasks(claim=claim)):
        await soon(looked)
        for _ in range(3):
            looked.clear()
            await workshop.enqueue("nothing", needs=("gpu",))
            await soon(looked)
        await workshop.final(await workshop.enqueue("nothing"))

    assert claims < 20


async def test_a_worker_can_do_what_its_agent_can(workshop: Workshop) -> None:
    workshop.handle(nothing)
    await registry.register(workshop.stores, CODER, 2, kind="coder", capabilities=["gpu"])
    task = await workshop.enqueue("nothing", needs=("gpu", "net"))
    async with workshop.worker(agent=CODER, capabilities=("net",)):
        assert (await workshop.final(task)).status is Status.COMPLETED

        async def is_told() -> bool:
            return (await known_worker(workshop.stores)).capabilities == ("gpu", "net")

        await eventually(is_told)


@pytest.mark.parametrize("max_tasks", [None, 4])
async def test_a_worker_changes_nothing_about_what_its_agent_is(workshop: Workshop, max_tasks: int | None) -> None:
    workshop.handle(nothing)
    await registry.register(workshop.stores, CODER, 2, kind="coder", capabilities=["gpu"])
    async with workshop.worker(agent=CODER, max_tasks=max_tasks, capabilities=("net",)):
        await workshop.final(await workshop.enqueue("nothing"))

    [use] = await workshop.stores.agents.list_agents()
    assert (use.agent.type, use.agent.capabilities, use.agent.max_tasks) == ("coder", ("gpu",), max_tasks or 2)


async def test_what_an_agent_learns_its_workers_can_do_from_the_next_heartbeat_on(workshop: Workshop) -> None:
    workshop.handle(nothing)
    await registry.register(workshop.stores, CODER, 2)
    task = await workshop.enqueue("nothing", needs=("gpu",))
    async with workshop.worker(agent=CODER, heartbeat_s=0.05):
        await workshop.final(await workshop.enqueue("nothing"))
        assert (await workshop.get(task)).status is Status.PENDING

        await registry.register(workshop.stores, CODER, 2, capabilities=["gpu"])

        assert (await workshop.final(task)).status is Status.COMPLETED


async def test_what_was_taken_away_from_an_agent_its_workers_cannot_do_any_more(workshop: Workshop) -> None:
    workshop.handle(nothing)
    await registry.register(workshop.stores, CODER, 2, capabilities=["gpu"])
    async with workshop.worker(agent=CODER, heartbeat_s=0.05):
        await workshop.final(await workshop.enqueue("nothing", needs=("gpu",)))
        await registry.register(workshop.stores, CODER, 2, capabilities=[])

        async def has_heard() -> bool:
            return (await known_worker(workshop.stores)).capabilities == ()

        await eventually(has_heard)
        task = await workshop.enqueue("nothing", needs=("gpu",))
        await workshop.final(await workshop.enqueue("nothing"))
        assert (await workshop.get(task)).status is Status.PENDING


async def test_what_is_not_said_stays_as_it_is_known(stores: Stores) -> None:
    await registry.register(stores, CODER, 2, kind="coder", capabilities=["net", "gpu"])
    kept = await registry.register(stores, CODER, 3)
    cleared = await registry.register(stores, CODER, 3, kind="", capabilities=())

    assert (kept.type, kept.capabilities, kept.max_tasks) == ("coder", ("gpu", "net"), 3)
    assert (cleared.type, cleared.capabilities) == (None, ())
    assert isinstance(cleared, Agent)
