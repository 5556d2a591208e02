"""Locks as people write them: around a block, on an event loop or without one."""

import asyncio
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ade import Ade, AdeError, DeadlockVictim, Fence, LockLost, LockTimeout, StaleToken, read, write
from ade.errors import InvalidLock
from tests.domain import LockMode, LockQuery, LockStore

REPO, DB = "repo:app", "database:main"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ade.db'}"


@pytest.fixture
def app(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ade]:
    monkeypatch.setenv("ADE_STORE__BALLAST_MB", "0")
    made = Ade(url)
    yield made
    made.close().wait()


async def book_of(app: Ade) -> LockStore:
    locks = (await app.open()).stores.locks
    assert locks is not None
    return locks


class TestOnAnEventLoop:
    async def test_a_block_has_the_resource_for_itself(self, url: str) -> None:
        async with Ade(url) as app:
            async with app.lock(REPO, purpose="to merge") as held:
                assert held.token() > 0
                with pytest.raises(LockTimeout):
                    await asyncio.create_task(enter_at_once(app))  # another task is another holder
            assert await (await book_of(app)).find(LockQuery()) == []

    async def test_the_same_block_may_enter_again(self, url: str) -> None:
        async with Ade(url) as app, app.lock(REPO) as outer:
            async with app.lock(REPO) as inner, app.lock(read(REPO)) as share:
                assert inner.token() == share.token() == outer.token()
            assert not outer.is_lost, "only the outermost block lets go"

    async def test_several_are_had_together_or_not_at_all(self, url: str) -> None:
        async with Ade(url) as app, app.lock(write(REPO), read(DB)) as held:
            assert held.mode(DB) is LockMode.SHARED
            assert held.token(REPO) != held.token(DB)
            with pytest.raises(InvalidLock):
                held.token()

    async def test_a_reader_can_become_the_writer_and_go_back(self, url: str) -> None:
        async with Ade(url) as app, app.lock(read(REPO)) as held:
            before = held.token()
            await held.upgrade()
            assert (held.mode(), held.token() > before) == (LockMode.EXCLUSIVE, True)
            await held.downgrade()
            assert held.mode() is LockMode.SHARED

    @pytest.mark.realtime
    async def test_the_block_ends_when_its_lock_is_taken_away(self, url: str) -> None:
        fence = Fence()
        async with Ade(url) as app:
            tokens: list[int] = []
            ends: list[str] = []

            async def agent() -> None:
                async with app.lock(REPO, ttl=6) as held:
                    tokens.append(held.token())
                    await (await book_of(app)).take_away("default", held.id, reason="stuck", by="ada")
                    async with app.lock(DB):
                        await asyncio.Event().wait()
                    ends.append("as if nothing had happened")

            with pytest.raises(LockLost):
                await agent()
            assert ends == []
            async with app.lock(REPO) as held:
                fence.check(REPO, held.token())
            with pytest.raises(StaleToken):
                fence.check(REPO, tokens[0])

    async def test_somebody_elses_cancellation_is_not_taken_for_a_lost_lock(self, url: str) -> None:
        async with Ade(url) as app:
            inside = asyncio.Event()

            async def hold() -> None:
                async with app.lock(REPO):
                    inside.set()
                    await asyncio.Event().wait()

            holding = asyncio.create_task(hold())
            await inside.wait()
            holding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holding
            async with app.lock(REPO, wait=0):
                pass

    @pytest.mark.realtime
    async def test_a_ring_is_opened(self, url: str) -> None:
        async with Ade(url) as app:
            barrier = asyncio.Barrier(2)

            async def agent(first: str, second: str) -> str:
                try:
                    async with app.lock(first):
                        await barrier.wait()
                        async with app.lock(second):
                            return "both"
                except DeadlockVictim:
                    return "gave way"

            async with asyncio.timeout(60):
                ends = await asyncio.gather(agent(REPO, DB), agent(DB, REPO))
            assert sorted(ends) == ["both", "gave way"]


async def enter_at_once(app: Ade) -> None:
    async with app.lock(REPO, wait=0):
        pass


class TestWithoutAnEventLoop:
    def test_threads_have_it_one_after_the_other(self, app: Ade) -> None:
        inside, most = 0, 0

        def work() -> None:
            nonlocal inside, most
            with app.lock(REPO) as held, app.lock(read(REPO)):
                inside += 1
                most = max(most, inside)
                held.check()
                inside -= 1

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

        assert most == 1

    def test_it_waits_no_longer_than_told(self, app: Ade) -> None:
        with app.lock(REPO):
            failed: list[BaseException] = []

            def other() -> None:
                try:
                    with app.lock(REPO, wait=0):
                        pass
                except LockTimeout as error:
                    failed.append(error)

            thread = threading.Thread(target=other)
            thread.start()
            thread.join(10)
        assert len(failed) == 1

    @pytest.mark.parametrize(
        "wrong", [{"ttl": 0.1}, {"ttl": 4000}, {"wait": -1}, {"priority": 10}, {"namespace": "a b"}]
    )
    def test_what_is_wrong_is_told_where_it_is_written(self, app: Ade, wrong: dict[str, object]) -> None:
        with pytest.raises(AdeError, match="not"):
            app.lock(REPO, **wrong)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("wrong", [{"ttl": math.nan}, {"wait": -1}, {"wait": math.nan}, {"owner": ""}])
def test_who_asks_for_something_impossible_is_told_where_it_is_written(app: Ade, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidLock):
        app.lock(REPO, **wrong)
