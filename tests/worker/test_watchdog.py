"""The guardian keeps the leases of a worker that lives but cannot renew."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

import pytest

from ade.worker.shared_memory import HeldRun, LeasePageSnapshot, SharedLeasePage, entry_of
from ade.worker.watchdog import WatchdogConfig, WatchdogProcess, is_stopped, runs_to_renew, watch

A, B = "a" * 32, "b" * 32
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


class TestWatch:
    def looks(self, slate: SharedLeasePage, times: int, renew: object = None) -> list[dict[str, str]]:
        """Let the guardian look some times; answers what it renewed."""
        renewed: list[dict[str, str]] = []
        left = times

        def wait(seconds: float) -> bool:
            nonlocal left
            left -= 1
            return left < 0

        def note(runs: Mapping[str, str]) -> None:
            renewed.append(dict(runs))

        brief = WatchdogConfig(os.getpid(), slate.descriptor, slate.capacity, HEARTBEAT_MS, SILENCE_MS, "", "")
        watch(slate, brief, lambda: renew or note, wait)  # type: ignore[arg-type,return-value]  # any callable
        return renewed

    def test_a_silent_workers_runs_are_renewed_and_it_is_told(self, slate: SharedLeasePage) -> None:
        slate.write_runs([entry_of(HeldRun(A, 0, "task"))])
        slate.write_beat(time.monotonic_ns() // 1_000_000 - 3 * HEARTBEAT_MS)
        assert self.looks(slate, 1) == [{A: "task"}]
        assert slate.read().guarded_ms > 0

    def test_it_does_not_renew_more_often_than_the_worker_would(self, slate: SharedLeasePage) -> None:
        slate.write_runs([entry_of(HeldRun(A, 0))])
        slate.write_beat(time.monotonic_ns() // 1_000_000 - 3 * HEARTBEAT_MS)
        assert len(self.looks(slate, 2)) == 1

    def test_a_renewal_that_fails_does_not_end_it(
        self, slate: SharedLeasePage, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(runs: Mapping[str, str]) -> None:
            raise OSError("disk gone")

        slate.write_runs([entry_of(HeldRun(A, 0))])
        slate.write_beat(time.monotonic_ns() // 1_000_000 - 3 * HEARTBEAT_MS)
        self.looks(slate, 3, refuse)
        assert 'guardian.not_renewed error="disk gone"' in caplog.text
        assert slate.read().guarded_ms == 0


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
