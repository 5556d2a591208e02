"""What a handle on an enqueued task can tell and do."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from ade import Ade, Context, Status, TaskCancelled, TaskFailed
from ade.errors import ResultExpired, UnknownTask, WaitTimeout
from ade.testing import TestKit


async def test_result_waits_for_the_end(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> int:
        return 3

    task = await work.enqueue()
    waiting = asyncio.create_task(task.result(timeout=30))
    await kit.drain()

    assert await waiting == 3


async def test_result_gives_up_after_the_time_out(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> None: ...

    task = await work.enqueue()
    with pytest.raises(WaitTimeout, match=r"0\.01 s"):
        await task.result(timeout=0.01)
    assert await task.status() is Status.PENDING


async def test_a_failure_carries_the_stored_error(ade: Ade, kit: TestKit) -> None:
    @ade.task(max_attempts=1)
    async def work() -> None:
        raise LookupError("no such page")

    task = await work.enqueue()
    await kit.drain()

    with pytest.raises(TaskFailed, match="LookupError: no such page") as failure:
        await task.result()
    error = failure.value.error
    assert error is not None
    assert (error.type, error.message) == ("LookupError", "no such page")
    assert "LookupError" in str((error.details or {})["traceback"])
    assert (await task.wait()).status is Status.FAILED


async def test_a_cancelled_task_has_no_result(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> None: ...

    task = await work.enqueue()
    cancelled = await task.cancel("changed my mind")

    assert cancelled.status is Status.CANCELLED
    assert await kit.drain() == 0
    with pytest.raises(TaskCancelled, match="changed my mind") as refusal:
        await task.result()
    assert refusal.value.reason == "changed my mind"


async def test_a_result_is_kept_for_its_time_and_the_record_longer(ade: Ade, kit: TestKit) -> None:
    @ade.task(result_ttl=60)
    async def work() -> int:
        return 3

    task = await work.enqueue()
    await kit.drain()
    assert await task.result() == 3
    await kit.advance(61)

    with pytest.raises(ResultExpired):
        await task.result()
    assert await task.status() is Status.COMPLETED


async def test_a_large_result_that_expires_while_it_is_fetched_is_told_as_expired(
    ade: Ade, kit: TestKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    @ade.task(result_ttl=60)
    async def work() -> str:
        return "x" * 200_000

    task = await work.enqueue()
    await kit.drain()
    blobs = (await ade.open()).stores.blobs
    get_blob = blobs.get_blob

    async def get_late(ref: str) -> bytes:
        await kit.advance(61)
        return await get_blob(ref)

    monkeypatch.setattr(blobs, "get_blob", get_late)
    with pytest.raises(ResultExpired):
        await task.result()


async def test_none_is_a_result_and_not_an_expired_one(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> None: ...

    task = await work.enqueue()
    await kit.drain()
    answer: object = await task.result()  # type: ignore[func-returns-value] # the value in question
    assert answer is None


async def test_events_tell_the_story_and_can_be_followed_to_the_end(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> None: ...

    task = await work.enqueue()
    assert [event.type async for event in task.events()] == ["task.created"]

    async def follow() -> list[str]:
        return [event.type async for event in task.events(follow=True)]

    following = asyncio.create_task(follow())
    await kit.drain()
    assert await following == ["task.created", "task.claimed", "task.succeeded"]


async def test_output_is_kept_with_the_task(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def talk(ctx: Context, lines: int) -> None:
        for number in range(lines):
            await ctx.log("line", number=number)

    task = await talk.enqueue(3)
    await kit.drain()
    assert [line.text async for line in task.output()] == ["line number=0", "line number=1", "line number=2"]
    assert [line.text async for line in task.output(follow=True)][-1] == "line number=2"


async def test_a_handle_can_be_made_again_from_the_id(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> frozenset[int]:
        return frozenset({1})

    task = await work.enqueue()
    await kit.drain()

    by_function: Any = work.handle(task.id)
    by_app: Any = ade.handle(task.id)
    assert by_function == by_app == task
    assert len({task, by_app}) == 1
    assert await by_function.result() == await by_app.result() == frozenset({1})


async def test_an_unknown_id_is_an_error(ade: Ade, kit: TestKit) -> None:
    handle: Any = ade.handle("01a1e0ed-09bf-7bad-a392-aa9658d81c3b")

    for call in (handle.status(), handle.result(), handle.cancel(), handle.explain()):
        with pytest.raises(UnknownTask):
            await call


async def test_many_can_wait_at_once(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work(number: int) -> int:
        return number

    tasks = await ade.enqueue_many([work.call(number) for number in range(300)])
    waiting = asyncio.gather(*(task.result(timeout=30) for task in tasks))
    await kit.drain()

    assert await waiting == list(range(300))


async def test_explain_is_at_hand(ade: Ade, kit: TestKit) -> None:
    @ade.task
    async def work() -> None: ...

    task = await work.with_options(delay=timedelta(hours=1)).enqueue()
    assert "delayed" in (await task.explain()).codes
