"""The machine's clock: every process on this boot has the same steady time, and no wall clock moves it."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from ade.stores.sqlite.connection import MachineClock
from ade.testing import TestClock
from tests.conformance.scene import Scene
from tests.stores.sqlite.conftest import OpenStore

HOUR = 3_600


@dataclass
class Machine:
    """A machine whose clocks and boots a story controls."""

    wall_s: int = 1_760_000_000
    up_s: int = 5_000
    boot: str = "first"

    def time_ns(self) -> int:
        return self.wall_s * 1_000_000_000

    def monotonic(self) -> float:
        """For time limits of connections, which no story moves."""
        return time.monotonic()

    def monotonic_ns(self) -> int:
        return self.up_s * 1_000_000_000

    def pass_time(self, seconds: int) -> None:
        self.wall_s += seconds
        self.up_s += seconds

    def reboot(self, *, off_s: int, wall_jump_s: int = 0) -> None:
        self.boot += "+"
        self.wall_s += off_s + wall_jump_s
        self.up_s = 20


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr("ade.stores.sqlite.connection.time", made)
    monkeypatch.setattr("ade.stores.sqlite.connection.boot_id", lambda: made.boot)
    return made


async def test_processes_of_one_boot_share_steady_time_whatever_the_wall_clock_does(
    open_store: OpenStore, machine: Machine
) -> None:
    first = (await open_store()).clock
    machine.pass_time(10)
    machine.wall_s -= 30 * HOUR
    second = (await open_store()).clock

    assert first.steady() == second.steady() == (1_760_000_000 + 10) * 1000
    assert first.now() == second.now() == machine.wall_s * 1000


@pytest.mark.parametrize("jump_s", [HOUR, -HOUR, -24 * HOUR])
async def test_a_wall_clock_that_jumps_ends_no_lease_and_keeps_none_alive(
    open_store: OpenStore, machine: Machine, jump_s: int
) -> None:
    stores = await open_store()
    scene = Scene(stores, TestClock(datetime.now(UTC)))
    await scene.start()
    machine.wall_s += jump_s

    assert (await stores.sweeps.due(10)).expired == []
    machine.pass_time(31)
    assert len((await stores.sweeps.due(10)).expired) == 1


@pytest.mark.parametrize("wall_jump_s", [0, -24 * HOUR, HOUR])
async def test_after_a_reboot_every_lease_is_over(open_store: OpenStore, machine: Machine, wall_jump_s: int) -> None:
    before = await open_store()
    await Scene(before, TestClock(datetime.now(UTC))).start()
    assert await before.sweeps.take_duty("sweep", "old", 60_000)
    steady = before.clock.steady()
    await before.close()
    machine.reboot(off_s=5, wall_jump_s=wall_jump_s)

    after = await open_store()
    machine.pass_time(1)

    assert after.clock.steady() > steady
    assert len((await after.sweeps.due(10)).expired) == 1
    assert await after.sweeps.take_duty("sweep", "new", 60_000)


async def test_a_clock_that_moved_far_is_worth_a_warning(open_store: OpenStore, machine: Machine) -> None:
    stores = await open_store()
    assert (await stores.maintenance.health()).warnings == []

    machine.wall_s += 60

    [warning] = (await stores.maintenance.health()).warnings
    assert "moved by 60 s" in warning


def test_the_machines_own_clock_goes_on() -> None:
    clock = MachineClock()

    assert clock.steady() <= clock.steady()
    assert clock.now() > 1_700_000_000_000
