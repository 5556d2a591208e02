"""What the settings say about locks holds for every way to ask for one."""

import asyncio
from pathlib import Path

import pytest

from ade import Ade, LockTimeout
from ade.app.working import worker_options
from ade.core.errors import LockRateLimited, TooManyLocks
from ade.core.locks.limits import LockLimits
from ade.settings import LockSettings, Settings, StoreSettings
from ade.wiring import lock_limits

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

        async with asyncio.timeout(20):
            ends = await asyncio.gather(crossing(REPO, DB), crossing(DB, REPO))

        told = await (await app.open()).stores.events.read(0, 100)

    assert set(ends) == {"waited in vain"}
    assert "lock.deadlock" not in {event.type for event in told}
