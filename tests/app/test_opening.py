"""The store is opened once, at the first use, whatever comes first."""

import asyncio
from pathlib import Path

import pytest

from ade import Ade, Settings
from ade.composition.app_store import OpenStore, StoreOpener
from ade.errors import InvalidUrl, StoreUnavailable
from tests.domain import StoreSettings


async def test_nothing_is_opened_before_the_first_use(tmp_path: Path) -> None:
    file = tmp_path / "ade.db"
    ade = Ade(f"sqlite:///{file}")

    @ade.task
    async def work() -> None: ...

    assert not file.exists()
    await work.enqueue()
    assert file.exists()
    await ade.close()


async def test_a_wrong_url_is_reported_at_the_first_use(tmp_path: Path) -> None:
    ade = Ade("mysql://localhost")

    @ade.task
    async def work() -> None: ...

    with pytest.raises(InvalidUrl, match="mysql"):
        await work.enqueue()


async def test_the_url_comes_before_the_settings(tmp_path: Path) -> None:
    settings = Settings(store=StoreSettings(url="sqlite:///nowhere.db"))

    assert Ade("memory://", settings=settings).settings.store.url == "memory://"
    assert Ade(settings=settings).settings.store.url == "sqlite:///nowhere.db"


async def test_all_who_come_at_once_get_the_same_store() -> None:
    opened: list[OpenStore] = []
    gate = asyncio.Event()

    async def open_store() -> OpenStore:
        await gate.wait()
        opened.append(object.__new__(OpenStore))
        return opened[-1]

    opening = StoreOpener(open_store)
    waiting = [asyncio.create_task(opening.open()) for _ in range(5)]
    await asyncio.sleep(0)
    gate.set()

    assert set(await asyncio.gather(*waiting)) == {opened[0]}
    assert len(opened) == 1


async def test_after_a_failure_the_next_one_tries_again() -> None:
    answers: list[OpenStore | Exception] = [StoreUnavailable("away"), object.__new__(OpenStore)]

    async def open_store() -> OpenStore:
        await asyncio.sleep(0)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    opening = StoreOpener(open_store)
    first, second = await asyncio.gather(opening.open(), opening.open(), return_exceptions=True)
    assert isinstance(first, StoreUnavailable)
    assert isinstance(second, StoreUnavailable)
    assert isinstance(await opening.open(), OpenStore)


async def test_whoever_opens_may_be_cancelled_without_harm_to_the_others() -> None:
    gate = asyncio.Event()
    begun: list[int] = []

    async def open_store() -> OpenStore:
        begun.append(1)
        if len(begun) == 1:
            await gate.wait()
        return object.__new__(OpenStore)

    opening = StoreOpener(open_store)
    first = asyncio.create_task(opening.open())
    await asyncio.sleep(0)
    second = asyncio.create_task(opening.open())
    await asyncio.sleep(0)
    first.cancel()

    assert isinstance(await second, OpenStore)
    assert len(begun) == 2
    with pytest.raises(asyncio.CancelledError):
        await first
