"""Calls that come while one is under way go out together with the next; who is alone does not wait for company."""

import asyncio

import pytest

from ade.stores.redis.client.batcher import Batcher


class Server:
    """Answers each ask with its double, when it is let to; an ask of 0 is refused."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.tasks: list[int] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def send(self, asks: list[int]) -> list[int | Exception]:
        self.batches.append(asks)
        self.tasks.append(len(asyncio.all_tasks()))
        await self.may_answer.wait()
        await asyncio.sleep(0)
        return [2 * ask if ask else ValueError("nothing") for ask in asks]

    def batcher(self, *, most: int = 100) -> Batcher[int, int]:
        return Batcher(self.send, weigh=lambda _: 1, most=most, lone=True)


async def test_who_is_alone_sends_without_another_task() -> None:
    server = Server()
    batcher = server.batcher()
    here = len(asyncio.all_tasks())

    assert [await batcher.ask(ask) for ask in (1, 2, 3)] == [2, 4, 6]
    assert server.batches == [[1], [2], [3]]
    assert server.tasks == [here] * 3


async def test_who_comes_meanwhile_goes_with_the_others() -> None:
    server = Server()
    batcher = server.batcher(most=3)

    assert await asyncio.gather(*(batcher.ask(ask) for ask in range(1, 8))) == [2, 4, 6, 8, 10, 12, 14]
    assert server.batches == [[1], [2, 3, 4], [5, 6, 7]]


async def test_a_crowd_stays_together() -> None:
    """A crowd that is answered together asks together again, all of it in one batch."""
    server = Server()
    batcher = server.batcher()

    async def ask_thrice(ask: int) -> None:
        for _ in range(3):
            await batcher.ask(ask)

    await asyncio.gather(*(ask_thrice(ask) for ask in range(1, 11)))
    assert [len(batch) for batch in server.batches] == [1, 10, 10, 9]

    assert await batcher.ask(5) == 10  # the crowd is gone
    assert await batcher.ask(6) == 12
    assert server.batches[-2:] == [[5], [6]]


async def test_a_refusal_is_the_own_of_each() -> None:
    batcher = Server().batcher()
    with pytest.raises(ValueError, match="nothing"):
        await batcher.ask(0)

    answers = await asyncio.gather(*(batcher.ask(ask) for ask in (1, 0, 2)), return_exceptions=True)

    assert [repr(answer) for answer in answers] == ["2", "ValueError('nothing')", "4"]


async def test_one_who_gives_up_keeps_nobody_else_from_being_sent() -> None:
    server = Server()
    batcher = server.batcher()
    server.may_answer.clear()
    first, second = (asyncio.create_task(batcher.ask(ask)) for ask in (1, 2))
    await asyncio.sleep(0)

    first.cancel()
    server.may_answer.set()

    assert await second == 4
    assert first.cancelled()
    assert server.batches == [[1], [2]]


async def test_what_everybody_gave_up_is_not_sent_later() -> None:
    server = Server()
    batcher = server.batcher()
    server.may_answer.clear()
    first, second = (asyncio.create_task(batcher.ask(ask)) for ask in (1, 2))
    await asyncio.sleep(0)
    for each in (second, first):
        each.cancel()
    await asyncio.wait([first, second])
    server.may_answer.set()

    assert await batcher.ask(3) == 6
    assert server.batches == [[1], [3]]
