"""Renewals: from a thread, at once when asked, and what follows when they fail."""

import asyncio
import os
import signal
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ade import Status
from ade.errors import StoreUnavailable
from ade.stores.ports import Renewal, WorkerStore
from ade.tasks.service import cancel
from ade.worker.lease import LeaseThread
from ade.worker.shared_memory import SharedLeasePage
from ade.worker.watchdog import WatchdogSpec
from tests.waiting import eventually
from tests.worker.harness import Replaced, Workshop, soon


class Scene:
    """A lease thread with a clock moved by hand and a store that can be taken away."""

    def __init__(self, heartbeat_s: float = 5.0, lease_s: float = 30.0) -> None:
        self.moment = 100.0
        self.away = False
        self.defects = 0  # renewals that will end in one
        self.gone: dict[str, Status | None] = {}
        self.guarded = 0.0
        self.renewed: list[dict[str, str]] = []
        self.claiming: tuple[str, ...] = ()
        self.told_gone: list[Mapping[str, Status | None]] = []
        self.told_overdue = 0
        self.unreached: tuple[str, ...] = ()
        self.given_up: list[str] = []
        self.beats = 0
        self.beaten = threading.Semaphore(0)
        self.lease = LeaseThread(self, Held(self), heartbeat_s=heartbeat_s, lease_s=lease_s, clock=lambda: self.moment)

    def renew(self, held: Mapping[str, str], claiming: Sequence[str] = ()) -> Renewal:
        if self.away:
            raise StoreUnavailable("no route")
        if self.defects:
            self.defects -= 1
            raise ZeroDivisionError
        self.renewed.append(dict(held))
        self.claiming = tuple(claiming)
        self.beats += 1
        self.beaten.release()
        return Renewal(gone=self.gone, unreached=self.unreached)

    def guarded_at(self) -> float:
        return self.guarded


class Held:
    """One run, and what it is told."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def to_renew(self) -> dict[str, str]:
        return {"run": "task"}

    def claiming(self) -> Sequence[str]:
        return ("claimed",)

    def gone(self, lost: Mapping[str, Status | None]) -> None:
        self._scene.told_gone.append(lost)

    def overdue(self) -> None:
        self._scene.told_overdue += 1

    def give_up(self, run_ids: Collection[str]) -> None:
        self._scene.given_up += run_ids


def test_all_runs_are_renewed_in_one_call() -> None:
    scene = Scene()
    scene.lease.beat()
    assert scene.renewed == [{"run": "task"}]
    assert scene.claiming == ("claimed",)
    assert scene.told_gone == []


def test_runs_that_are_gone_are_told() -> None:
    scene = Scene()
    scene.gone = {"run": Status.CANCELLED}
    scene.lease.beat()
    assert scene.told_gone == [{"run": Status.CANCELLED}]


def test_runs_are_given_up_a_heartbeat_before_the_lease_ends() -> None:
    scene = Scene()
    scene.lease.beat()
    scene.away = True
    scene.moment += 25.0
    scene.lease.beat()
    assert scene.told_overdue == 0
    scene.moment += 0.5
    scene.lease.beat()
    assert scene.told_overdue == 1


def test_only_the_runs_of_a_part_that_does_not_respond_are_given_up() -> None:
    scene = Scene()
    scene.lease.beat()
    scene.unreached = ("run",)

    for _ in range(5):  # 25 s: a heartbeat before the lease ends
        scene.moment += 5.0
        scene.lease.beat()
    assert (scene.given_up, scene.told_overdue) == ([], 0)
    scene.moment += 1.0
    scene.lease.beat()

    assert (scene.given_up, scene.told_overdue, scene.lease.is_overdue()) == (["run"], 0, False)
    assert scene.lease.may_judge()  # the leases of other parts
    scene.unreached = ()
    scene.lease.beat()
    assert not scene.lease.may_judge()  # the others renew first
    scene.moment += 5.0
    scene.lease.beat()
    assert scene.lease.may_judge()


def test_a_store_that_comes_back_in_time_changes_nothing() -> None:
    scene = Scene()
    scene.away = True
    scene.moment += 20
    scene.lease.beat()
    scene.away = False
    scene.lease.beat()
    scene.moment += 20
    scene.away = True
    scene.lease.beat()
    assert scene.told_overdue == 0


def test_after_a_long_block_the_store_decides_and_not_the_clock() -> None:
    scene = Scene()
    scene.moment += 90
    scene.lease.beat()
    assert scene.told_overdue == 0


def test_what_a_guardian_renewed_meanwhile_counts() -> None:
    scene = Scene()
    scene.moment += 90
    assert scene.lease.is_overdue()
    scene.guarded = scene.moment - 5
    assert not scene.lease.is_overdue()


def test_a_thread_that_missed_two_beats_is_late() -> None:
    scene = Scene()
    scene.moment += 10
    assert not scene.lease.is_late()
    scene.moment += 0.1
    assert scene.lease.is_late()


def test_the_thread_renews_at_once_when_asked() -> None:
    scene = Scene(heartbeat_s=600.0, lease_s=1800.0)
    scene.lease.start()
    assert scene.beaten.acquire(timeout=60)
    scene.lease.kick()
    assert scene.beaten.acquire(timeout=60)
    scene.lease.stop()
    assert scene.beats == 2


def test_runs_are_given_up_in_time_also_when_it_is_a_defect_that_keeps_them_from_being_renewed() -> None:
    scene = Scene()
    scene.defects = 1
    scene.moment += 26
    scene.lease.beat()
    assert scene.told_overdue == 1


def test_a_defect_does_not_end_the_thread() -> None:
    scene = Scene(heartbeat_s=0.01, lease_s=10.0)
    scene.defects = 1
    scene.lease.start()
    assert scene.beaten.acquire(timeout=60)
    scene.lease.stop()


@pytest.mark.parametrize(
    ("timeout_ms", "silence_s"), [(2_000, 900.0), (None, 2.0)], ids=["past its time-out", "silent for long"]
)
async def test_a_blocked_loop_does_not_keep_its_runs_for_ever(
    workshop: Workshop, timeout_ms: int | None, silence_s: float
) -> None:
    """The lease thread goes on, so it must tell by itself that a run is held for too long."""
    blocked, given_up = threading.Event(), threading.Event()
    kept: list[int] = []

    def renew(worker: Any, held: Mapping[str, str], **terms: Any) -> Renewal:
        if blocked.is_set():
            kept.append(len(held))
            if not held:
                given_up.set()
        return workshop.stores.workers.renew(worker, held, **terms)

    async def block() -> bool:
        blocked.set()
        return given_up.wait(60)

    workshop.handle(block)
    stores = replace(workshop.stores, workers=cast(WorkerStore, Replaced(workshop.stores.workers, {"renew": renew})))
    limits = {"cancel_grace_s": 0.2, "heartbeat_s": 0.05, "guard_silence_s": silence_s}
    async with workshop.worker(stores=stores, **limits):
        task = await workshop.final(await workshop.enqueue("block", timeout_ms=timeout_ms))
    assert given_up.is_set()
    assert kept[0] == 1  # as long as it may run, it is kept
    assert task.attempt == 1


async def test_a_cancelled_run_ends_although_the_heartbeat_could_not_be_recorded(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def fail(page: SharedLeasePage, beat_ms: int) -> None:
        raise ValueError("closed")

    began = asyncio.Event()
    workshop.handle(wait)
    task = await workshop.enqueue("wait")
    async with workshop.worker(heartbeat_s=0.05):
        await soon(began)
        monkeypatch.setattr(SharedLeasePage, "write_beat", fail)
        await cancel(workshop.stores, task.id, None)
        await soon(ended)
    assert (await workshop.get(task)).status is Status.CANCELLED


async def test_a_guardian_that_was_killed_is_replaced(workshop: Workshop) -> None:
    def pid() -> int:
        running = shift.runtime._backend
        return 0 if running is None or running._guard is None else running._guard.pid

    async def first_pid() -> int:
        return pid()

    async def another_pid() -> bool:
        return pid() != killed

    async with workshop.worker(guardian=WatchdogSpec("json:loads", ""), heartbeat_s=0.05) as shift:
        killed = await eventually(first_pid)
        os.kill(killed, signal.SIGKILL)
        assert await eventually(another_pid)
        assert await workshop.stores.workers.list_workers()
