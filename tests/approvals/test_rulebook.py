"""The rulebook in the store: whole, in versions, told of, and soon known to everybody who follows it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from ade.approvals.repository import RULEBOOK_CHANGED, SELF_REVIEW_ALLOWED, RulebookCache, apply, history, load
from ade.errors import StaleWrite
from tests.conformance.backends import BACKENDS
from tests.domain import RULES, Document, Event, Rulebook, Stores, read_rulebook


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    opened = await BACKENDS[request.param].open(tmp_path, None)
    yield opened
    await opened.close()


def denying(reason: str, **policy: Any) -> Rulebook:
    policies = [{"id": "p", "rules": [{"roles": ["reviewer"]}], **policy}] if policy else []
    return read_rulebook({"guard": [{"do": "deny", "reason": reason}], "policy": policies})


async def events(stores: Stores) -> list[Event]:
    return await stores.events.read(0, 100)


async def test_without_a_rulebook_there_is_an_empty_one(stores: Stores) -> None:
    assert await load(stores) == Rulebook()
    assert await history(stores) == []


async def test_a_rulebook_that_is_applied_is_in_force_and_told_of(stores: Stores) -> None:
    applied = await apply(stores, denying("first"), actor="ada")

    assert applied.version == 1
    assert await load(stores) == applied
    [told] = await events(stores)
    assert (told.type, told.actor, told.payload["version"]) == (RULEBOOK_CHANGED, "ada", 1)
    assert len(str(told.payload["digest"])) == 64


async def test_every_version_is_kept(stores: Stores) -> None:
    for number in range(1, 13):
        await apply(stores, denying(f"version {number}"), actor="ada")

    editions = await history(stores)
    assert [edition.version for edition in editions] == list(range(12, 0, -1))
    assert read_rulebook(editions[-1].rules).guard[0].reason == "version 1"
    assert editions[0].by == "ada"


async def test_applying_the_same_again_changes_nothing(stores: Stores) -> None:
    first = await apply(stores, denying("same"), actor="ada")
    again = await apply(stores, denying("same"), actor="bob")

    assert again == first
    assert len(await events(stores)) == 1


async def test_a_rulebook_made_from_an_older_version_is_refused(stores: Stores) -> None:
    await apply(stores, denying("first"), actor="ada", seen=0)
    await apply(stores, denying("second"), actor="ada", seen=1)

    with pytest.raises(StaleWrite, match="at version 2 now, not 1"):
        await apply(stores, denying("late"), actor="bob", seen=1)
    assert (await load(stores)).guard[0].reason == "second"


async def test_of_two_who_apply_at_once_one_is_told(stores: Stores) -> None:
    answers = await asyncio.gather(
        *(apply(stores, denying(f"by {name}"), actor=name, seen=0) for name in ("ada", "bob")), return_exceptions=True
    )

    assert sorted(type(answer).__name__ for answer in answers) == ["Rulebook", "StaleWrite"]
    assert len(await history(stores)) == 1
    assert len(await events(stores)) == 1


async def test_a_policy_that_lets_authors_vote_is_told_of_by_itself(stores: Stores) -> None:
    await apply(stores, denying("x", authors_may_vote=True), actor="ada")

    changed, allowed = await events(stores)
    assert changed.type == RULEBOOK_CHANGED
    assert (allowed.type, allowed.payload) == (SELF_REVIEW_ALLOWED, {"version": 1, "policies": ["p"]})


async def heard(stores: Stores, cause: Callable[[], Any]) -> None:
    """Do it, and come back when this loop was told of it."""
    rung = asyncio.Event()
    unfollow = stores.wakeups.follow("rules", rung.set)
    await cause()
    async with asyncio.timeout(60):
        await rung.wait()
    unfollow()


async def test_those_who_follow_know_a_new_rulebook_at_once(stores: Stores) -> None:
    cache = RulebookCache(stores)
    assert cache.peek() is None
    assert await cache.current() == Rulebook()

    await heard(stores, lambda: apply(stores, denying("new"), actor="ada"))

    assert (await cache.current()).version == 1
    assert cache.peek() is await cache.current()


async def test_what_is_fresh_is_not_read_again(stores: Stores) -> None:
    reads = 0

    class Counting:
        async def fetch(self, kind: str, ids: Sequence[str]) -> list[Document | None]:
            nonlocal reads
            reads += 1
            return await stores.documents.fetch(kind, ids)

    counting: Any = Counting()
    cache = RulebookCache(replace(stores, documents=counting))
    await asyncio.gather(*(cache.current() for _ in range(50)))

    assert reads <= 2  # 1, unless a subscription was made meanwhile


async def test_the_same_version_stays_the_same_object(stores: Stores) -> None:
    await apply(stores, denying("x"), actor="ada")
    cache = RulebookCache(stores)
    first = await cache.current()
    stores.wakeups.notify(RULES)

    assert cache.fresh() is None
    assert await cache.current() is first
    assert structs.asdict(first)["version"] == 1
