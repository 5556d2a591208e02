"""The guardian keeps the leases of a worker that lives but cannot renew."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec import Raw

from ade import Task
from ade.worker import shared_memory
from ade.worker.shared_memory import (
    CLAIMED,
    PREPARING,
    STARTED,
    DeadWorker,
    HeldRun,
    LeasePageSnapshot,
    SharedLeasePage,
    entry_of,
    page_directory,
)
from ade.worker.watchdog import Watch, WatchdogConfig, WatchdogProcess, is_stopped, runs_to_renew, watch
from tests.domain import Run, WorkerOptions, WorkerState

A, B, C = "a" * 32, "b" * 32, "c" * 32
HEARTBEAT_MS, SILENCE_MS = 5_000, 900_000


@pytest.fixture
def slate() -> Iterator[SharedLeasePage]:
    created = SharedLeasePage.create(capacity=4)
    yield created
    created.close()


def keep(page: LeasePageSnapshot, now_ms: int) -> list[str]:
    return list(runs_to_renew(page, now_ms=now_ms, heartbeat_ms=HEARTBEAT_MS, silence_ms=SILENCE_MS))


class TestDecision:
    def test_a_worker_that_beats_is_left_alone(self) -> None:
        assert keep(LeasePageSnapshot(100_000, 0, (HeldRun(A, 0),)), now_ms=110_000) == []

    def test_a_silent_worker_gets_its_runs_renewed(self) -> None:
        assert keep(LeasePageSnapshot(100_000, 0, (HeldRun(A, 0), HeldRun(B, 0))), now_ms=110_001) == [A, B]

    def test_a_run_past_its_own_time_out_is_given_up(self) -> None:
        page = LeasePageSnapshot(100_000, 0, (HeldRun(A, 150_000), HeldRun(B, 0)))
        assert keep(page, now_ms=149_999) == [A, B]
        assert keep(page, now_ms=150_000) == [B]

    def test_a_run_without_a_time_out_is_not_kept_for_ever(self) -> None:
        assert keep(LeasePageSnapshot(100_000, 0, (HeldRun(A, 0),)), now_ms=100_000 + SILENCE_MS) == []

    def test_nothing_is_renewed_for_a_worker_that_never_began(self) -> None:
        assert keep(LeasePageSnapshot(0, 0, (HeldRun(A, 0),)), now_ms=1_000_000) == []


class TestSlate:
    def test_what_one_side_writes_the_other_reads(self, slate: SharedLeasePage) -> None:
        other = SharedLeasePage(os.dup(slate.descriptor), slate.capacity)
        slate.write_runs([entry_of(HeldRun(A, 0)), entry_of(HeldRun(B, 77))])
        slate.write_beat(5)
        other.write_guarded(6)
        assert other.read() == LeasePageSnapshot(5, 6, (HeldRun(A, 0), HeldRun(B, 77)))
        assert slate.read() == other.read()
        slate.write_runs([])
        assert other.read().runs == ()
        other.close()

    def test_more_runs_than_fit_are_cut_and_not_written_past_the_end(self, slate: SharedLeasePage) -> None:
        slate.write_claim([A] * 10, 1)
        assert len(slate.read().claiming) == 4
        slate.write_runs(entry_of(HeldRun(A, number)) for number in range(10))
        assert len(slate.read().runs) == 4

    def test_a_page_that_was_never_finished_is_not_believed(self, slate: SharedLeasePage) -> None:
        slate.write_runs([entry_of(HeldRun(A, 0))])
        assert slate.read().runs == (HeldRun(A, 0),)
        slate._memory[0:8] = (7).to_bytes(8, "little")  # stopped in the middle of writing
        slate._memory[24:28] = (0).to_bytes(4, "little")
        assert slate.read().runs == (HeldRun(A, 0),)

    def test_the_other_side_knows_the_groups_that_are_left(self, slate: SharedLeasePage) -> None:
        for group in (70, 80, 90):
            slate.add_group(group)
        slate.remove_group(80)
        slate.write_runs([entry_of(HeldRun(A, 0))] * slate.capacity)
        other = SharedLeasePage(os.dup(slate.descriptor), slate.capacity)
        assert other.read_groups() == [70, 90]
        other.close()

    def test_a_number_that_stands_for_all_processes_is_never_a_group(self, slate: SharedLeasePage) -> None:
        for group in (-1, 1, 2):
            slate.add_group(group)
        assert slate.read_groups() == [2]

    def test_more_groups_than_fit_are_borne(self, slate: SharedLeasePage) -> None:
        for group in range(2, 2_000):
            slate.add_group(group)
        slate.remove_group(1_999)
        assert len(slate.read_groups()) == 1_024


class Store:
    """What the watchdog does on the store, written down."""

    def __init__(self, error: Exception | None = None) -> None:
        self.renewed: list[dict[str, str]] = []
        self.claims: list[tuple[str, ...]] = []  # renewed with them
        self.returned: list[tuple[dict[str, str], tuple[str, ...]]] = []
        self.error = error

    def renew(self, runs: Mapping[str, str], claiming: Sequence[str]) -> None:
        if self.error is not None:
            raise self.error
        self.renewed.append(dict(runs))
        self.claims.append(tuple(claiming))

    def give_back(self, runs: Mapping[str, str], claiming: Sequence[str]) -> None:
        if self.error is not None:
            raise self.error
        self.returned.append((dict(runs), tuple(claiming)))


def brief_of(slate: SharedLeasePage) -> WatchdogConfig:
    return WatchdogConfig(os.getpid(), slate.descriptor, slate.capacity, HEARTBEAT_MS, SILENCE_MS, "", "")


class TestWatch:
    def looks(self, slate: SharedLeasePage, times: int, store: Store | None = None) -> Store:
        """Let the guardian look some times."""
        store, left = store or Store(), times

        def wait(seconds: float) -> bool:
            nonlocal left
            left -= 1
            return left < 0

        watch(slate, brief_of(slate), lambda: store, wait)
        return store

    def test_a_silent_workers_runs_are_renewed_and_it_is_told(self, slate: SharedLeasePage) -> None:
        slate.write_runs([entry_of(HeldRun(A, 0, "task"))])
        slate.write_claim([B], 1)
        slate.write_beat(time.monotonic_ns() // 1_000_000 - 3 * HEARTBEAT_MS)
        store = self.looks(slate, 1)
        assert (store.renewed, store.claims) == ([{A: "task"}], [(B,)])
        assert slate.read().guarded_ms > 0

    def test_it_does_not_renew_more_often_than_the_worker_would(self, slate: SharedLeasePage) -> None:
        slate.write_runs([entry_of(HeldRun(A, 0))])
        slate.write_beat(time.monotonic_ns() // 1_000_000 - 3 * HEARTBEAT_MS)
        assert len(self.looks(slate, 2).renewed) == 1

    def test_a_renewal_that_fails_does_not_end_it(
        self, slate: SharedLeasePage, caplog: pytest.LogCaptureFixture
    ) -> None:
        slate.write_runs([entry_of(HeldRun(A, 0))])
        slate.write_beat(time.monotonic_ns() // 1_000_000 - 3 * HEARTBEAT_MS)
        self.looks(slate, 3, Store(OSError("disk gone")))
        assert 'guardian.not_renewed error="disk gone"' in caplog.text
        assert slate.read().guarded_ms == 0


class TestUnstartedRuns:
    """Runs that were claimed at 1,000 ms, and an event loop that last ran at 1,000 ms."""

    @pytest.fixture
    def blocked(self, slate: SharedLeasePage) -> SharedLeasePage:
        steps = {A: STARTED, B: CLAIMED, C: PREPARING}
        slate.write_runs(entry_of(HeldRun(each, 0, f"task-{each[0]}", 1_000, step)) for each, step in steps.items())
        slate.write_loop(1_000)
        slate.write_beat(1_000)
        return slate

    def test_they_are_revoked_first_and_returned_at_the_next_look(self, blocked: SharedLeasePage) -> None:
        store = Store()
        watching = Watch(blocked, brief_of(blocked), lambda: store)
        watching.look(2_499)
        assert (blocked.revoked_ms(), store.returned) == (0, [])
        watching.look(2_500)
        assert (blocked.revoked_ms(), store.returned) == (2_500, [])
        watching.look(3_000)
        watching.look(3_500)
        assert store.returned == [({B: "task-b"}, ())]

    def test_one_that_starts_in_between_is_the_workers(self, blocked: SharedLeasePage) -> None:
        store = Store()
        watching = Watch(blocked, brief_of(blocked), lambda: store)
        watching.look(2_500)
        blocked.write_step(1, STARTED)
        watching.look(3_000)
        assert store.returned == []

    def test_a_claim_whose_response_is_unread_is_asked_for_again_and_again(self, slate: SharedLeasePage) -> None:
        """The store may commit it at any time."""
        store = Store()
        slate.write_claim([A, B], 900)
        slate.write_loop(1_000)
        watching = Watch(slate, brief_of(slate), lambda: store)
        for moment in range(2_500, 6_001, 500):
            watching.look(moment)
        assert store.returned == [({}, (A, B))] * 2
        slate.write_runs([])
        watching.look(9_000)
        assert len(store.returned) == 2

    def test_leases_are_renewed_although_nothing_can_be_returned(self, blocked: SharedLeasePage) -> None:
        class Halved(Store):
            def give_back(self, runs: Mapping[str, str], claiming: Sequence[str]) -> None:
                raise OSError("no such table")

        store = Halved()
        watching = Watch(blocked, brief_of(blocked), lambda: store)
        for moment in (2_500, 3_000, 11_002):
            watching.look(moment)
        assert store.renewed == [{A: "task-a", B: "task-b", C: "task-c"}]

    def test_a_run_that_has_locks_is_not_returned_by_the_watchdog(self, slate: SharedLeasePage) -> None:
        """Another run of its task would get the same locks, and the worker would then release those."""
        state, store = WorkerState(WorkerOptions(), now=0, page=slate), Store()
        run = Run(Task(id="task", name="work", run_id=A, args=Raw(b"{}")), None)
        state.claim([A])
        state.hold(run)
        state.publish()
        assert state.reach(run, PREPARING)
        slate.write_revoked(run.claimed_ms)
        assert not state.reach(run, STARTED)
        state.publish()

        slate.write_loop(1)
        watching = Watch(slate, brief_of(slate), lambda: store)
        for later in (2_000, 3_000):
            watching.look(run.claimed_ms + later)
        assert (slate.read().runs[0].step, store.returned) == (PREPARING, [])

    def test_a_run_that_has_started_is_not_revoked(self, slate: SharedLeasePage) -> None:
        state = WorkerState(WorkerOptions(), now=0, page=slate)
        run = Run(Task(id="task", name="work", run_id=A, args=Raw(b"{}")), None)
        state.claim([A])
        state.hold(run)
        state.publish()
        assert state.reach(run, STARTED)  # for its preview
        slate.write_revoked(run.claimed_ms)
        assert state.reach(run, STARTED)

    def test_a_failure_is_repeated(self, blocked: SharedLeasePage) -> None:
        store = Store(OSError("disk gone"))
        watching = Watch(blocked, brief_of(blocked), lambda: store)
        watching.look(2_500)
        watching.look(3_000)
        store.error = None
        watching.look(3_500)
        assert store.returned == [({B: "task-b"}, ())]

    def test_a_page_that_was_never_finished_returns_nothing(self, blocked: SharedLeasePage) -> None:
        store = Store()
        blocked._memory[0:8] = (7).to_bytes(8, "little")  # stopped in the middle of writing
        watching = Watch(blocked, brief_of(blocked), lambda: store)
        for moment in (2_500, 3_000, 3_500):
            watching.look(moment)
        assert (blocked.revoked_ms(), store.returned) == (0, [])


class TestDeadWorkers:
    """Pages as other workers of the host see them, in a directory where no real worker looks."""

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setattr(shared_memory, "_DIRECTORIES", (str(tmp_path),))
        directory = page_directory()
        assert directory is not None
        return directory

    def found(self) -> DeadWorker | None:
        """The dead worker, if there is one."""
        found = DeadWorker.open("w1")
        if found is not None:
            found.release()
            assert DeadWorker.names() == ["w1"]
            return DeadWorker.open("w1")
        assert DeadWorker.names() == []
        return None

    def test_hundreds_of_pages_are_never_open_at_the_same_time(self) -> None:
        pages = [SharedLeasePage.create(1, f"w{number}") for number in range(100)]
        try:
            for page in pages:
                fcntl.flock(page.descriptor, fcntl.LOCK_UN)
            before = len(list(Path("/proc/self/fd").iterdir()))
            assert set(DeadWorker.names()) == {f"w{number}" for number in range(100)}
            assert len(list(Path("/proc/self/fd").iterdir())) == before
        finally:
            for page in pages:
                page.close()

    def test_pages_of_workers_that_were_silent_for_long_are_looked_at_only_now_and_then(self) -> None:
        page = SharedLeasePage.create(1, "w1")
        fcntl.flock(page.descriptor, fcntl.LOCK_UN)
        os.utime(page.descriptor, (0, 0))
        assert DeadWorker.names((), 600.0) == []
        assert DeadWorker.names((), 600.0, always={"w1"}) == ["w1"]
        assert DeadWorker.names() == ["w1"]
        page.close()

    def test_a_worker_that_lives_is_never_taken_for_dead(self) -> None:
        """Not even within the same process, or while its page is open elsewhere."""
        page = SharedLeasePage.create(4, "w1")
        child = page.for_child()
        assert page.path
        assert self.found() is None
        os.close(child)
        assert self.found() is None
        page.close()
        assert self.found() is None

    def test_a_page_that_another_program_removed_still_serves_a_new_watchdog(self) -> None:
        page = SharedLeasePage.create(4, "w1")
        page.write_runs([entry_of(HeldRun(A, 0, "task"))])
        Path(page.path).unlink()
        child = SharedLeasePage(page.for_child(), page.capacity)
        assert child.read().runs == (HeldRun(A, 0, "task"),)
        child.close()
        page.close()

    def test_the_page_of_a_dead_worker_tells_what_had_started(self) -> None:
        page = SharedLeasePage.create(4, "w1")
        page.write_runs([entry_of(HeldRun(A, 0, "task", 1, STARTED)), entry_of(HeldRun(B, 0, "task", 1))])
        page.write_claim([C], 2)
        os.close(os.dup(page.descriptor))
        fcntl.flock(page.descriptor, fcntl.LOCK_UN)  # as the system does when a process dies
        dead = self.found()
        assert dead is not None
        assert self.found() is None  # one worker at a time takes it over
        has_started = dead.started()
        assert [has_started(run_id) for run_id in (A, B, C, "d" * 32)] == [True, False, False, True]
        dead.release()
        again = self.found()
        assert again is not None
        again.remove()
        assert self.found() is None
        page.close()

    @pytest.mark.parametrize(
        ("at", "value"),
        [(0, (7).to_bytes(8, "little")), (56, b"ADEPAGE0")],
        ids=["stopped in the middle of writing", "of another version"],
    )
    def test_a_page_that_cannot_be_read_counts_everything_as_started(self, at: int, value: bytes) -> None:
        page = SharedLeasePage.create(4, "w1")
        page.write_runs([entry_of(HeldRun(A, 0, "task", 1))])
        page._memory[at : at + 8] = value
        fcntl.flock(page.descriptor, fcntl.LOCK_UN)
        dead = self.found()
        assert dead is not None
        assert dead.started()(A)
        dead.remove()
        page.close()

    def test_a_directory_that_others_can_write_to_is_not_used(self, directory: str) -> None:
        Path(directory).chmod(0o777)
        page = SharedLeasePage.create(4, "w1")
        assert (page_directory(), page.path) == (None, "")
        page.close()


def test_a_running_process_is_not_stopped_and_a_missing_one_is() -> None:
    assert not is_stopped(os.getpid())
    assert is_stopped(2**22 + 1)


def test_what_a_guardian_is_told_survives_the_way() -> None:
    brief = WatchdogConfig(1, 2, 3, 4, 5, "module:name", '{"store": "sqlite:///a b.db", "tab": "\\t"}')
    assert WatchdogConfig.from_line(brief.line()) == brief


@pytest.mark.parametrize("said", [b"", b"12\t3"])
def test_a_guardian_whose_worker_died_before_it_could_speak_ends_without_a_word(said: bytes) -> None:
    guardian = subprocess.run(
        [sys.executable, "-m", "ade.worker.watchdog"], input=said, capture_output=True, check=False, timeout=120
    )

    assert (guardian.returncode, guardian.stdout, guardian.stderr) == (0, b"", b"")


class TestProcess:
    """A real guardian, and a process that it finds on the slate."""

    @pytest.fixture
    def handler(self, slate: SharedLeasePage) -> Iterator["subprocess.Popen[bytes]"]:
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
            slate.add_group(process.pid)
            yield process
            process.kill()

    @pytest.fixture
    def guardian(self, slate: SharedLeasePage) -> Iterator[WatchdogProcess]:
        brief = WatchdogConfig(os.getpid(), slate.descriptor, slate.capacity, HEARTBEAT_MS, SILENCE_MS, "", "")
        started = WatchdogProcess.start(brief, slate.descriptor)
        yield started
        started.stop()

    def test_what_is_left_on_the_slate_ends_when_the_line_is_closed(
        self, handler: "subprocess.Popen[bytes]", guardian: WatchdogProcess
    ) -> None:
        line = guardian._process.stdin
        assert line is not None
        line.close()  # `stop` would not wait for a guardian that is slow to begin
        assert handler.wait(timeout=60) == -signal.SIGKILL

    def test_one_that_is_killed_takes_nothing_with_it(
        self, handler: "subprocess.Popen[bytes]", guardian: WatchdogProcess
    ) -> None:
        os.kill(guardian.pid, signal.SIGKILL)
        guardian.stop()
        assert handler.poll() is None
