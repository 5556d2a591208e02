"""What type checkers infer from the API. Checked by mypy through tests/app/test_typing.py; never run."""

from dataclasses import dataclass
from typing import Any, assert_type

from ade import Ade, Context, Status, SyncContext, Task, TaskHandle
from ade.common.calls import Call
from ade.tasks.enqueue import Invocation

ade = Ade("memory://")


@dataclass
class Summary:
    text: str


@ade.task(timeout=60, max_attempts=3, concurrency_key=lambda url: url)
async def summarise(url: str, limit: int = 500) -> Summary:
    return Summary(url[:limit])


@ade.task
def count(text: str) -> int:
    return len(text)


@ade.task
async def with_context(ctx: Context, number: int) -> str:
    return f"{ctx.task_id} {number}"


@ade.task(cpu=True)
def with_sync_context(ctx: SyncContext, number: int) -> str:
    return f"{ctx.task_id} {number}"


@ade.task
async def with_context_at_the_end(number: int, ctx: Context | None = None) -> str:
    return f"{ctx} {number}"


@ade.cron("0 3 * * *", tz="Europe/Berlin")
async def nightly() -> None: ...


@ade.cron("0 4 * * *", name="again")
@ade.task(timeout=5)
async def weekly(pages: int = 3) -> int:
    return pages


async def cases() -> None:
    assert_type(await summarise.enqueue("https://example.org"), TaskHandle[Summary])
    assert_type(await summarise("https://example.org"), Summary)
    assert_type(summarise.enqueue("https://example.org", limit=3).wait(), TaskHandle[Summary])
    handle = await summarise.with_options(priority=2, delay=30, after=[summarise.call("x")]).enqueue("y")
    assert_type(handle, TaskHandle[Summary])
    assert_type(await handle.result(timeout=90), Summary)
    assert_type(await handle.status(), Status)
    assert_type(await handle.wait(), Task)
    assert_type(summarise.call("a"), Invocation[Summary])
    assert_type(await ade.enqueue_many([summarise.call("a"), summarise.call("b")]), list[TaskHandle[Summary]])
    assert_type(await ade.enqueue("summarise", {"url": "x"}, priority=1), TaskHandle[Any])
    assert_type(ade.close(), Call[None])

    assert_type(count("four"), int)
    assert_type(await count.enqueue("four"), TaskHandle[int])
    assert_type(await with_context.enqueue(3), TaskHandle[str])
    assert_type(await with_context(3), str)
    assert_type(await with_sync_context.enqueue(number=3), TaskHandle[str])
    assert_type(await with_context_at_the_end.enqueue(3), TaskHandle[str])
    assert_type(await nightly.enqueue(), TaskHandle[None])
    assert_type(await weekly.enqueue(pages=5), TaskHandle[int])
    assert_type(await weekly(), int)

    # Each of these must be an error; an unused ignore fails the check.
    await summarise.enqueue(3)  # type: ignore[arg-type] # url is text
    await summarise.enqueue()  # type: ignore[call-arg] # url is missing
    await summarise.enqueue("x", limt=3)  # type: ignore[call-arg] # there is no such parameter
    await summarise.with_options(prio=3).enqueue("x")  # type: ignore[call-arg] # there is no such option
    await summarise.with_options(priority="asap").enqueue("x")  # type: ignore[arg-type] # no such priority
    with_context.enqueue(number="3").wait()  # type: ignore[arg-type] # a number
    summarise.call(3)  # type: ignore[arg-type] # url is text


async def child(ctx: Context) -> None:
    assert_type(await ctx.enqueue(summarise, "x", limit=3), TaskHandle[Summary])
    await ctx.enqueue(summarise, 3)  # type: ignore[arg-type] # url is text


def sync_child(ctx: SyncContext) -> None:
    ctx.enqueue(count, "x")
