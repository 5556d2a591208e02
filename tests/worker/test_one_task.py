"""A worker that is there for one task alone."""

from ade.core.lifecycle import Status
from ade.worker.one_task import only_for
from tests.worker.workshop import Workshop, plain


async def test_it_runs_its_task_and_what_waits_for_it_and_nobody_elses(workshop_anywhere: Workshop) -> None:
    workshop, begun = workshop_anywhere, list[str]()

    async def work(number: int) -> int:
        begun.append(f"work {number}")
        if begun.count(f"work {number}") == 1:
            raise RuntimeError("once more")
        return number

    workshop.handle(work)
    others = [await workshop.enqueue("work", {"number": number}, priority=0) for number in range(3)]
    own = await workshop.enqueue("work", {"number": 7})
    after = await workshop.enqueue("work", {"number": 8}, depends_on=(own.id,))

    async with workshop.worker(stores=only_for(workshop.stores, own.id), concurrency=1, poll_s=0.1):
        assert plain((await workshop.final(after)).result) == 8

    assert begun == ["work 7", "work 7", "work 8", "work 8"]
    assert [(task.status, task.attempt) for task in [await workshop.get(each) for each in others]] == [
        (Status.PENDING, 0)
    ] * 3


async def test_nothing_is_touched_while_its_task_is_not_to_be_had(workshop: Workshop) -> None:
    async def work() -> None: ...

    workshop.handle(work)
    other = await workshop.enqueue("work")
    own = await workshop.enqueue("work", run_after=workshop.stores.clock.now() + 300)

    async with workshop.worker(stores=only_for(workshop.stores, own.id), concurrency=1, poll_s=0.05):
        assert (await workshop.final(own)).status is Status.COMPLETED

    assert await workshop.event_types(other) == ["task.created", "task.claimed", "task.released"]
