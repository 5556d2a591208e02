"""Settings and features that are changed while all goes on: within bounds, told of, and never out of order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade.approvals.errors import InvalidSetting, UnknownSetting
from ade.approvals.risk import Thresholds
from ade.settings.runtime import (
    FEATURES,
    IN_ORDER,
    SETTINGS,
    RuntimeSettings,
    RuntimeSettingsCache,
    load,
    set_value,
    switch,
    unset,
)
from tests.conformance.backends import BACKENDS
from tests.domain import LockHolder, LockMode, LockRequest, StoreLockClient, Stores, validate_request


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    opened = await BACKENDS[request.param].open(tmp_path, None)
    yield opened
    await opened.close()


async def told(stores: Stores) -> list[tuple[object, ...]]:
    return [
        (event.type, event.actor, *(event.payload[key] for key in ("name", "old", "new")))
        for event in await stores.events.read(0, 100)
    ]


def test_every_default_is_within_its_bounds_and_in_order() -> None:
    assert all(known.least <= known.default <= known.most for known in SETTINGS.values())
    assert all(SETTINGS[lower].default <= SETTINGS[upper].default for lower, upper in IN_ORDER)
    assert {name for pair in IN_ORDER for name in pair} <= set(SETTINGS)
    assert all(known.about for known in SETTINGS.values())
    assert all(known.about for known in FEATURES.values())


async def test_what_the_store_says_goes_before_files_and_defaults(stores: Stores) -> None:
    before = await load(stores)
    after = await set_value(stores, "lock.default_ttl_s", 60, actor="ada")

    assert before.get("lock.default_ttl_s") == 30
    assert before.get("lock.default_ttl_s", otherwise=45) == 45
    assert after.get("lock.default_ttl_s", otherwise=45) == 60
    assert await load(stores) == after


async def test_features_are_switched(stores: Stores) -> None:
    assert (await load(stores)).is_on("deadlock_detection")
    assert not (await load(stores)).is_on("auto_approve_low_risk")
    assert not (await load(stores)).is_on("deadlock_detection", otherwise=False)

    after = await switch(stores, "deadlock_detection", False, actor="ada")

    assert not after.is_on("deadlock_detection", otherwise=True)


async def test_every_change_is_told_with_what_was_before(stores: Stores) -> None:
    await set_value(stores, "risk.high", 60, actor="ada")
    await set_value(stores, "risk.high", 60, actor="bob")  # nothing new
    await set_value(stores, "risk.high", 65, actor="bob")
    await unset(stores, "risk.high", actor="eve")
    await unset(stores, "risk.high", actor="eve")
    await switch(stores, "batch_approvals", False, actor="ada")
    await unset(stores, "batch_approvals", actor="ada")

    assert await told(stores) == [
        ("setting.changed", "ada", "risk.high", None, 60),
        ("setting.changed", "bob", "risk.high", 60, 65),
        ("setting.changed", "eve", "risk.high", 65, None),
        ("feature.changed", "ada", "batch_approvals", None, False),
        ("feature.changed", "ada", "batch_approvals", False, None),
    ]
    assert await load(stores) == RuntimeSettings()


@pytest.mark.parametrize("value", [0.9, 3601, -1, float("nan"), float("inf"), True])
async def test_a_value_out_of_bounds_is_refused_with_the_bounds(stores: Stores, value: float) -> None:
    with pytest.raises(InvalidSetting, match=r"lock\.max_ttl_s is a number from 1 to 3600"):
        await set_value(stores, "lock.max_ttl_s", value, actor="ada")
    assert await told(stores) == []


async def test_values_must_fit_to_each_other(stores: Stores) -> None:
    with pytest.raises(InvalidSetting, match=r"risk\.medium \(80\) must not be above risk\.high \(50\)"):
        await set_value(stores, "risk.medium", 80, actor="ada")
    await set_value(stores, "risk.critical", 95, actor="ada")
    await set_value(stores, "risk.high", 90, actor="ada")
    await set_value(stores, "risk.medium", 80, actor="ada")
    with pytest.raises(InvalidSetting, match="change the other one first"):
        await unset(stores, "risk.high", actor="ada")

    assert (await load(stores)).thresholds() == Thresholds(medium=80, high=90, critical=95)


def test_thresholds_are_in_order_whatever_the_store_has() -> None:
    assert RuntimeSettings(values={"risk.medium": 90, "risk.critical": 60, "risk.high": 80}).thresholds() == Thresholds(
        medium=60, high=60, critical=60
    )


async def test_names_that_nothing_has_are_refused(stores: Stores) -> None:
    with pytest.raises(UnknownSetting, match=r"did you mean risk\.high\?"):
        await set_value(stores, "risk.hihg", 50, actor="ada")
    with pytest.raises(UnknownSetting, match="did you mean batch_approvals"):
        await switch(stores, "batch_aprovals", True, actor="ada")
    with pytest.raises(UnknownSetting, match="`ade config show`"):
        await unset(stores, "quite.other", actor="ada")


async def test_many_who_set_the_same_all_get_through(stores: Stores) -> None:
    await asyncio.gather(*(set_value(stores, "risk.high", 50 + number, actor=f"a{number}") for number in range(4)))

    changes = await told(stores)
    olds, news = [change[3] for change in changes], [change[4] for change in changes]
    assert olds[1:] == news[:-1]
    assert (await load(stores)).get("risk.high") == news[-1]


async def test_a_cache_knows_what_was_set(stores: Stores) -> None:
    cache = RuntimeSettingsCache(stores)
    assert await cache.current() == RuntimeSettings()
    rung = asyncio.Event()
    unfollow = stores.wakeups.follow("rules", rung.set)

    await switch(stores, "auto_approve_low_risk", True, actor="ada")
    async with asyncio.timeout(60):
        await rung.wait()

    assert (await cache.current()).is_on("auto_approve_low_risk")
    unfollow()


@pytest.mark.parametrize("in_file", [True, False])
async def test_a_file_says_whether_rings_are_found_until_the_store_does(stores: Stores, in_file: bool) -> None:
    holder = LockHolder(StoreLockClient(stores, finds_rings=in_file))

    assert await holder.client._looks_for_rings() is in_file
    await switch(stores, "deadlock_detection", not in_file, actor="ada")
    assert await holder.client._looks_for_rings() is not in_file
    await holder.close()


async def test_rings_are_found_once_the_feature_is_on(stores: Stores) -> None:
    """Two agents wait for each other, and no file wants that to be noticed."""
    await switch(stores, "deadlock_detection", True, actor="ada")
    holder = LockHolder(StoreLockClient(stores, finds_rings=False))

    def wanting(scope: str, resource: str) -> LockRequest:
        return validate_request(
            id=f"{scope}-{resource}", owner=scope, scope=scope, wanted=[(resource, LockMode.EXCLUSIVE)]
        )

    async def crosses(scope: str, first: str, then: str, other: asyncio.Event, own: asyncio.Event) -> None:
        held = await holder.acquire(wanting(scope, first), wait_ms=0)
        own.set()
        await other.wait()
        try:
            await holder.release(await holder.acquire(wanting(scope, then), wait_ms=None))
        finally:
            await holder.release(held)

    one, two = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(60):
        ends = await asyncio.gather(
            crosses("a", "db:x", "db:y", two, one), crosses("b", "db:y", "db:x", one, two), return_exceptions=True
        )
    await holder.close()

    assert sorted(type(end).__name__ for end in ends) == ["DeadlockVictim", "NoneType"]
