"""Live events and lines from a server that breaks off, restarts and forgets."""

from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec
import pytest

from ade.errors import NotPermitted, ServerUnreachable, StoreUnavailable, UnknownTask
from ade.events.feed_items import TASK_IS_FINAL, EventBatch, FeedEnd, FeedEntry, FeedHeartbeat, Gap, Item, item_text
from ade.events.sse import block
from tests.client.scripted_server import DROP, Cut, problem_answer, story
from tests.domain import Event, OutputLine, ServerProblem, to_wire

T = TypeVar("T")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(seq: int) -> Event:
    return Event(seq=seq, type="task.created", at=1_760_000_000_000 + seq, task_id="t", payload={"queue": "q"})


def line(seq: int) -> OutputLine:
    return OutputLine(task_id="t", run_id="r", attempt=1, at=1_760_000_000_000, text=f"line {seq}", seq=seq)


def batch(*seqs: int) -> EventBatch:
    return EventBatch([FeedEntry(event(seq)) for seq in seqs])


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stream(*items: Item) -> bytes:
    return raw_stream(*(item_text(item, retry_ms=3_000) for item in items))


def raw_stream(*blocks: bytes) -> bytes:
    return HEAD + b"".join(chunk(data) for data in blocks) + b"0\r\n\r\n"


def lines(*seqs: int) -> bytes:
    encoded = (msgspec.json.encode(to_wire(line(seq))).decode() for seq in seqs)
    return b"".join(block(event="line", seq=seq, data=data) for seq, data in zip(seqs, encoded, strict=True))


async def some(items: AsyncIterator[T], count: int) -> list[T]:
    found: list[T] = []
    async for item in items:
        found.append(item)
        if len(found) == count:
            await items.aclose()  # type: ignore[attr-defined]
            break
    return found


async def test_events_come_as_they_happen_and_gaps_are_told() -> None:
    async with story(stream(batch(5, 6), Gap(6, 9), batch(10))) as told:
        items = aiter(told.client.follow_events(after=4, types=["task.*"], queues=["q", "r"], locks=["repo:app"]))
        assert await some(items, 4) == [event(5), event(6), Gap(6, 9), event(10)]
        assert told.lines == ["GET /api/v1/events?type=task.%2A&queue=q&queue=r&lock=repo%3Aapp&after=4"]
        assert told.asked("accept") == ["text/event-stream"]


async def test_after_a_break_it_goes_on_behind_the_last_event() -> None:
    answers = (stream(batch(1, 2), FeedHeartbeat(7)), stream(batch(8), FeedEnd("the server stops")), stream(batch(9)))
    async with story(*answers) as told:
        items = aiter(told.client.follow_events(after=0))
        assert await some(items, 4) == [event(1), event(2), event(8), event(9)]
        assert told.asked("last-event-id") == ["", "7", "8"]
        assert told.pauses == [0.1, 3.0]  # the second as the server wanted it


async def test_a_block_that_was_cut_off_comes_again() -> None:
    whole, half = item_text(batch(1)), item_text(batch(2))[:-10]
    async with story(Cut(HEAD + chunk(whole + half)), stream(batch(2))) as told:
        items = aiter(told.client.follow_events(after=0))
        assert await some(items, 2) == [event(1), event(2)]
        assert told.asked("last-event-id") == ["", "1"]


async def test_a_server_that_does_not_come_back_is_told_of_in_the_end() -> None:
    async with story(stream(batch(1)), DROP, DROP, DROP, DROP) as told:
        items = aiter(told.client.follow_events(after=0))
        assert await anext(items) == event(1)
        with pytest.raises(ServerUnreachable):
            await anext(items)
        assert len(told.pauses) == 3
        assert set(told.asked("last-event-id")[1:]) == {"1"}


async def test_patience_begins_anew_with_every_event() -> None:
    streams = [answer for seq in range(1, 6) for answer in (DROP, DROP, stream(batch(seq)))]
    async with story(stream(batch(0)), *streams) as told:
        items = aiter(told.client.follow_events(after=0))
        assert await some(items, 6) == [event(seq) for seq in range(6)]


async def test_a_server_without_a_place_is_asked_again_later() -> None:
    full = problem_answer(503, "unavailable", headers="retry-after: 9\r\n")
    async with story(full, stream(batch(1))) as told:
        assert await some(aiter(told.client.follow_events(after=0)), 1) == [event(1)]
        assert told.pauses == [9.0]
    async with story(*[problem_answer(503, "store_unavailable")] * 4) as told:
        with pytest.raises(StoreUnavailable):
            await anext(aiter(told.client.follow_events()))


async def test_who_may_not_see_it_is_told_at_once() -> None:
    async with story(problem_answer(403, "not_permitted")) as told:
        with pytest.raises(NotPermitted):
            await anext(aiter(told.client.follow_events()))
        assert told.pauses == []


async def test_a_server_that_was_never_reached_is_told_of_at_once() -> None:
    async with story() as told:
        pass
    with pytest.raises(ServerUnreachable):
        await anext(aiter(told.client.follow_events()))
    assert told.pauses == []


async def test_lines_come_until_the_task_is_final() -> None:
    end = block(event="end", data=msgspec.json.encode(FeedEnd(TASK_IS_FINAL)).decode())
    stop = block(event="end", data=msgspec.json.encode(FeedEnd("the server is about to stop")).decode())
    async with story(raw_stream(lines(1, 2), stop), raw_stream(lines(3), end)) as told:
        assert [each async for each in told.client.follow_output("t")] == [line(1), line(2), line(3)]
        assert told.asked("last-event-id") == ["", "2"]


async def test_lines_of_no_task_are_told_so() -> None:
    async with story(problem_answer(404, "unknown_task")) as told:
        with pytest.raises(UnknownTask):
            await anext(aiter(told.client.follow_output("t", after=7)))
        assert told.lines == ["GET /api/v1/tasks/t/output?after=7"]


@pytest.mark.parametrize("data", [block(event="task.x", data="{}"), block(event="gap", data="no"), b"data: 7\n\n"])
async def test_what_cannot_be_read_is_told_so(data: bytes) -> None:
    async with story(raw_stream(data)) as told:
        with pytest.raises(ServerProblem):
            await anext(aiter(told.client.follow_events()))


async def test_a_client_that_is_closed_follows_nothing_any_more() -> None:
    async with story(HEAD + chunk(item_text(batch(1)))) as told:
        following = aiter(told.client.follow_events(after=0))
        assert (await anext(following)).seq == 1  # type: ignore[union-attr]
        await told.client.close()
        with pytest.raises(ServerUnreachable):
            await anext(following)
        assert (told.server.visits, told.pauses) == (1, [])
