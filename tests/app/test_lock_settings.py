"""What the settings say about locks holds for every way to ask for one."""

import asyncio
from pathlib import Path

import pytest

from ade import Ade, Context, LockTimeout
from ade.composition.stores import lock_limits
from ade.composition.worker import worker_options
from ade.errors import InvalidLock, LockRateLimited, TooManyLocks
from ade.settings import Settings
from ade.settings.sections import LockSettings, StoreSettings
from ade.testing import harness
from tests.domain import LockLimits, LockQuery, set_value

REPO, DB = "repo:app", "database:main"


def app_with(folder: Path, locks: LockSettings) -> Ade:
    store = StoreSettings(url=f"sqlite:///{folder / 'ade.db'}", ballast_mb=0)
    return Ade(settings=Settings(store=store, locks=locks))


@pytest.mark.parametrize(
    ("rate", "limits"),
    [
        ("10000/s", LockLimits(acquires=10_000, acquires_per_ms=1_000)),
        ("10/30s", LockLimits(acquires=10, acquires_per_ms=30_000)),
        ("none", LockLimits()),
    ],
)
def test_the_settings_become_limits_for_programs_and_for_workers(rate: str, limits: LockLimits) -> None:
    settings = Settings(locks=LockSettings(acquire_rate=rate, deadlock_detection=False))

    assert lock_limits(settings) == limits
    assert worker_options(settings).lock_limits == limits
    assert not worker_options(settings).deadlock_detection


async def test_who_asks_too_often_is_refused(tmp_path: Path) -> None:
    async with app_with(tmp_path, LockSettings(acquire_rate="2/h")) as app:
        for _ in range(2):
            async with app.lock(REPO):
                pass

        with pytest.raises(LockRateLimited) as told:
            async with app.lock(REPO):
                pass
        assert 0 < told.value.retry_after_ms <= 1_800_000
        async with app.lock(REPO, owner="another"):
            pass


async def test_an_owner_has_no_more_locks_than_it_may(tmp_path: Path) -> None:
    async with app_with(tmp_path, LockSettings(requests_per_owner=1)) as app, app.lock(REPO):
        with pytest.raises(TooManyLocks):
            async with app.lock(DB):
                pass


@pytest.mark.realtime
async def test_without_detection_a_ring_ends_by_waiting_no_longer(tmp_path: Path) -> None:
    async with app_with(tmp_path, LockSettings(deadlock_detection=False)) as app:
        both_hold = asyncio.Barrier(2)

        async def crossing(mine: str, other: str) -> str:
            async with app.lock(mine, owner=mine):
                await both_hold.wait()
                with pytest.raises(LockTimeout):
                    async with app.lock(other, owner=mine, wait=2.5):
                        pass
                await both_hold.wait()
            return "waited in vain"

        async with asyncio.timeout(60):
            ends = await asyncio.gather(crossing(REPO, DB), crossing(DB, REPO))

        told = await (await app.open()).stores.events.read(0, 100)

    assert set(ends) == {"waited in vain"}
    assert "lock.deadlock" not in {event.type for event in told}


async def leases(app: Ade) -> list[int]:
    return [held.ttl_ms for held in await (await app.open()).stores.locks.find(LockQuery())]


async def test_blocks_and_runs_have_the_lease_that_the_store_says(tmp_path: Path) -> None:
    seen: list[list[int]] = []
    async with app_with(tmp_path, LockSettings()) as app, harness(app) as kit:

        @app.task
        async def works(ctx: Context) -> None:
            async with ctx.lock(DB):
                seen.append(await leases(app))

        await set_value(kit.stores, "lock.default_ttl_s", 12, actor="ada")
        await set_value(kit.stores, "lock.max_ttl_s", 20, actor="ada")
        async with app.lock(REPO):
            seen.append(await leases(app))
        await works.enqueue()
        await kit.drain()

        assert seen == [[12_000], [12_000]]
        with pytest.raises(InvalidLock, match=r"at most 20 s here \(lock.max_ttl_s\)"):
            await app.lock(REPO, ttl=21).__aenter__()


def test_a_thread_learns_the_lease_before_its_first_lock(tmp_path: Path) -> None:
    app = app_with(tmp_path, LockSettings())
    stores = app.portal.run(app.open()).stores
    app.portal.run(set_value(stores, "lock.default_ttl_s", 12, actor="ada"))
    app.portal.run(set_value(stores, "lock.max_ttl_s", 20, actor="ada"))

    with app.lock(REPO):
        assert app.portal.run(leases(app)) == [12_000]
    with pytest.raises(InvalidLock, match="at most 20 s"), app.lock(REPO, ttl=21):
        pass
    app.close().wait()
