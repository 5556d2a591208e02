"""Requests with a key are carried out once, whoever sends them how often, and whoever dies on the way."""

import asyncio

import pytest

from ade.server.idempotency import MOST_BODY, RETENTION_MS, RUNS_MS, StoredResponse
from ade.server.pipeline import KIND, BegunRequest, begin, finish, forget, renew
from ade.testing import TestClock
from tests.domain import RULES, RequestRefused, Stores
from tests.stores.interleaved_writes import meanwhile

CREATED = StoredResponse(status=201, headers={"Location": "/api/v1/tasks/1", "Set-Cookie": "no"}, body=b'{"id":"1"}')


async def begun(stores: Stores, print_: str = "f", account: str = "ada") -> BegunRequest:
    answer = await begin(stores, account, "key", print_)
    assert isinstance(answer, BegunRequest)
    return answer


async def refused(stores: Stores, print_: str = "f") -> int:
    with pytest.raises(RequestRefused) as caught:
        await begin(stores, "ada", "key", print_)
    return caught.value.problem.status


async def test_a_repeated_request_is_answered_as_the_first_time(stores: Stores) -> None:
    first = await begun(stores)
    assert not first.is_second_try
    assert await refused(stores) == 409
    await finish(stores, first, CREATED)

    again = await begin(stores, "ada", "key", "f")

    assert again == StoredResponse(
        status=201, headers={"location": "/api/v1/tasks/1", "idempotency-replayed": "true"}, body=b'{"id":"1"}'
    )
    assert await refused(stores, "g") == 422
    await begun(stores, "g", account="bob")  # the key of somebody else


async def test_nobody_is_woken_by_it_and_nothing_is_told(stores: Stores) -> None:
    rung = stores.wakeups.generation(RULES)

    await finish(stores, await begun(stores), CREATED)
    await forget(stores, await begun(stores, account="bob"))

    assert stores.wakeups.generation(RULES) == rung
    assert await stores.events.last_seq() == 0


async def test_a_refusal_frees_the_key(stores: Stores) -> None:
    await finish(stores, await begun(stores), StoredResponse(status=422, body=b"{}"))
    await forget(stores, await begun(stores, "g"))

    assert not (await begun(stores, "h")).is_second_try


async def test_of_many_at_once_one_carries_it_out(stores: Stores) -> None:
    answers = await asyncio.gather(*(begin(stores, "ada", "key", "f") for _ in range(8)), return_exceptions=True)

    assert sum(isinstance(answer, BegunRequest) for answer in answers) == 1
    assert sum(isinstance(answer, RequestRefused) for answer in answers) == 7


async def test_who_is_overtaken_while_he_decides_is_refused(stores: Stores) -> None:
    slow = meanwhile(stores, lambda: begun(stores))

    assert await refused(slow) == 409


async def test_a_request_whose_server_died_is_carried_out_by_the_next(stores: Stores, clock: TestClock) -> None:
    dead = await begun(stores)
    clock.advance(RUNS_MS / 1000 - 1)
    assert await refused(stores) == 409
    clock.advance(1)

    second = await begun(stores)
    assert second.is_second_try
    await finish(stores, dead, StoredResponse(status=200, body=b"late"))  # it was not dead after all
    await forget(stores, dead)
    await finish(stores, second, CREATED)

    again = await begin(stores, "ada", "key", "f")
    assert isinstance(again, StoredResponse)
    assert again.body == CREATED.body


async def test_who_says_that_it_still_runs_is_not_taken_for_dead(stores: Stores, clock: TestClock) -> None:
    slow = await begin(stores, "ada", "key", "f", runs_ms=30_000)
    assert isinstance(slow, BegunRequest)
    for _ in range(9):  # however long it takes
        clock.advance(20)
        await renew(stores, slow, 30_000)
        assert await refused(stores) == 409
    await finish(stores, slow, CREATED)
    await renew(stores, slow, 30_000)  # too late, and no harm
    assert isinstance(await begin(stores, "ada", "key", "f"), StoredResponse)


async def test_who_was_overtaken_renews_nothing(stores: Stores, clock: TestClock) -> None:
    dead = await begin(stores, "ada", "key", "f", runs_ms=30_000)
    assert isinstance(dead, BegunRequest)
    clock.advance(30)
    second = await begin(stores, "ada", "key", "f", runs_ms=30_000)
    assert isinstance(second, BegunRequest)
    assert second.is_second_try
    clock.advance(20)
    await renew(stores, dead, 30_000)
    clock.advance(10)
    assert (await begun(stores)).is_second_try  # the second has died too


async def test_the_wall_clock_takes_nobody_for_dead(stores: Stores, clock: TestClock) -> None:
    await begun(stores)
    clock.jump_wall(3_600)

    assert await refused(stores) == 409


async def test_after_a_day_the_key_is_free(stores: Stores, clock: TestClock) -> None:
    await finish(stores, await begun(stores), CREATED)
    clock.advance(RETENTION_MS / 1000)

    assert not (await begun(stores, "g")).is_second_try
    clock.advance(RETENTION_MS / 1000)
    assert await stores.documents.expire_documents(10) == 1
    assert await stores.documents.list_documents(KIND) == []


async def test_an_answer_too_large_to_be_kept_is_not_given_again(stores: Stores) -> None:
    await finish(stores, await begun(stores), StoredResponse(status=200, body=b"x" * (MOST_BODY + 1)))

    assert await refused(stores) == 409


async def test_bytes_that_are_no_text_come_back_as_they_were(stores: Stores) -> None:
    await finish(stores, await begun(stores), StoredResponse(status=200, body=b"\xff\x00"))

    again = await begin(stores, "ada", "key", "f")
    assert isinstance(again, StoredResponse)
    assert again.body == b"\xff\x00"
