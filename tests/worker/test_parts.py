"""The small parts: one timer for many, threads that do not hold anybody, output lines in batches, restarts."""

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ade.errors import StoreUnavailable
from ade.worker.output_buffer import OutputBuffer
from ade.worker.supervisor import RestartLimiter
from ade.worker.threads import DaemonThreadExecutor, HandlerThreads
from ade.worker.timer import SharedTimer
from tests.domain import OutputLine, Stores

HANGING = """
import asyncio, os, signal, threading
from ade import Ade
from ade.settings import Settings
from ade.settings.sections import WorkerSettings
ade = Ade("sqlite:///script.db", settings=Settings(worker=WorkerSettings(grace_s=0.1)))
@ade.task
async def hang() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.to_thread(threading.Event().wait)
if __name__ == "__main__":
    hang.enqueue().wait()
    print("handed back", len(ade.run_worker().handed_back))
"""


class HandLoop:
    """An event loop's clock, moved by hand."""

    def __init__(self) -> None:
        self.moment = 0.0
        self._alarms: list[tuple[float, object]] = []
        self.calls = 0

    def time(self) -> float:
        return self.moment

    def call_at(self, when: float, callback: object) -> "HandLoop.Handle":
        self.calls += 1
        alarm = (when, callback)
        self._alarms.append(alarm)
        return HandLoop.Handle(self._alarms, alarm)

    def advance(self, seconds: float) -> None:
        self.moment += seconds
        for alarm in [alarm for alarm in self._alarms if alarm[0] <= self.moment]:
            self._alarms.remove(alarm)
            alarm[1]()  # type: ignore[operator]  # what call_at was given

    class Handle:
        def __init__(self, alarms: list[tuple[float, object]], alarm: tuple[float, object]) -> None:
            self._alarms, self._alarm = alarms, alarm

        def cancel(self) -> None:
            if self._alarm in self._alarms:
                self._alarms.remove(self._alarm)


@pytest.fixture
def loop() -> HandLoop:
    return HandLoop()


@pytest.fixture
def timer(loop: HandLoop) -> SharedTimer:
    return SharedTimer(loop)  # type: ignore[arg-type]  # as much of a loop as a timer needs


class TestTimer:
    def test_moments_come_in_their_order_whatever_the_order_they_were_set_in(
        self, loop: HandLoop, timer: SharedTimer
    ) -> None:
        seen: list[str] = []
        timer.after(3, lambda: seen.append("third"))
        timer.after(1, lambda: seen.append("first"))
        timer.after(2, lambda: seen.append("second"))
        loop.advance(2)
        assert seen == ["first", "second"]
        loop.advance(1)
        assert seen == ["first", "second", "third"]

    def test_a_cancelled_moment_does_not_come(self, loop: HandLoop, timer: SharedTimer) -> None:
        seen: list[str] = []
        entry = timer.after(1, lambda: seen.append("cancelled"))
        timer.after(2, lambda: seen.append("kept"))
        timer.cancel(entry)
        timer.cancel(entry)
        loop.advance(5)
        assert seen == ["kept"]
        assert len(timer) == 0

    def test_far_moments_that_were_cancelled_do_not_pile_up(self, timer: SharedTimer) -> None:
        for _ in range(10_000):
            timer.cancel(timer.after(3600, lambda: None))
        assert len(timer._heap) < 3_000

    def test_later_moments_do_not_touch_the_alarm(self, loop: HandLoop, timer: SharedTimer) -> None:
        timer.after(1, lambda: None)
        for _ in range(100):
            timer.after(2, lambda: None)
        assert loop.calls == 1

    def test_a_callback_that_fails_takes_no_other_moment_with_it(self, loop: HandLoop, timer: SharedTimer) -> None:
        def fail() -> None:
            raise LookupError

        seen: list[str] = []
        timer.after(1, fail)
        timer.after(1, lambda: seen.append("same moment"))
        timer.after(2, lambda: seen.append("later"))
        loop.advance(1)
        loop.advance(1)
        assert seen == ["same moment", "later"]


class TestThreads:
    async def test_a_thread_is_started_only_when_none_is_idle(self) -> None:
        threads = HandlerThreads("test")
        names = {await threads.call(lambda: threading.current_thread().name) for _ in range(5)}
        first, second = threading.Event(), threading.Event()
        waiting = [threads.call(first.wait), threads.call(second.wait)]
        first.set()
        second.set()
        await asyncio.gather(*waiting)
        threads.close()
        assert len(names) <= 2  # the idle one may come back a moment late

    async def test_what_is_raised_comes_back_even_if_it_would_end_a_thread(self) -> None:
        threads = HandlerThreads("test")

        def leave() -> None:
            raise SystemExit(1)

        def stop() -> None:
            raise StopIteration

        with pytest.raises(SystemExit):
            await threads.call(leave)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await threads.call(stop)
        threads.close()

    async def test_asyncios_own_threads_run_everything_but_no_more_at_once_than_allowed(self) -> None:
        executor, loop = DaemonThreadExecutor(2), asyncio.get_running_loop()
        gate, names = threading.Event(), set[str]()

        def work(number: int) -> int:
            gate.wait()
            names.add(threading.current_thread().name)
            return number

        def leave() -> None:
            raise SystemExit(1)

        working = [loop.run_in_executor(executor, work, number) for number in range(5)]
        gate.set()
        assert await asyncio.gather(*working) == [0, 1, 2, 3, 4]
        assert len(names) <= 2
        with pytest.raises(SystemExit):
            await loop.run_in_executor(executor, leave)
        executor.shutdown()
        with pytest.raises(RuntimeError, match="process ends"):
            await loop.run_in_executor(executor, leave)

    def test_a_worker_process_ends_though_a_handler_hangs_in_such_a_thread(self, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(HANGING)
        ran = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert (ran.returncode, ran.stdout) == (0, "handed back 1\n"), ran.stderr

    async def test_context_variables_are_seen(self) -> None:
        tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
        tenant.set("acme")
        threads = HandlerThreads("test")
        assert await threads.call(tenant.get) == "acme"
        threads.close()


class TestOutputs:
    async def test_lines_are_stored_together_a_moment_later(self, stores: Stores) -> None:
        appended: list[int] = []
        stored = asyncio.Event()

        class Outputs:
            async def append(self, lines: Sequence[OutputLine]) -> None:
                appended.append(len(lines))
                stored.set()

            async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
                return []

        buffer = OutputBuffer(Outputs(), stores.clock)
        for number in range(3):
            await buffer.add("task", "run", 1, f"line {number}")
        assert appended == []
        await asyncio.wait_for(stored.wait(), 60)
        assert appended == [3]

    async def test_lines_wait_for_a_store_that_is_away_and_keep_their_order(self, stores: Stores) -> None:
        away = True
        texts: list[str] = []

        class Outputs:
            async def append(self, lines: Sequence[OutputLine]) -> None:
                if away:
                    raise StoreUnavailable("gone")
                texts.extend(line.text for line in lines)

            async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
                return []

        buffer = OutputBuffer(Outputs(), stores.clock)
        await buffer.add("task", "run", 1, "first")
        await buffer.flush()
        await buffer.add("task", "run", 1, "second")
        away = False
        await buffer.flush()
        assert texts == ["first", "second"]

    async def test_a_line_the_store_cannot_take_is_marked_and_the_others_are_kept(self, stores: Stores) -> None:
        texts: list[str] = []

        class Outputs:
            async def append(self, lines: Sequence[OutputLine]) -> None:
                if any("odd" in line.text for line in lines):
                    raise ValueError("cannot be encoded")
                texts.extend(line.text for line in lines)

            async def read_output(self, task_id: str, after: int, limit: int) -> list[OutputLine]:
                return []

        buffer = OutputBuffer(Outputs(), stores.clock)
        for text in ("first", "odd", "last"):
            await buffer.add("task", "run", 1, text)
        await buffer.flush()
        assert texts == ["first", "[this line could not be stored]", "last"]


class TestRestarts:
    def test_ten_restarts_a_minute_are_borne_and_the_eleventh_is_not(self) -> None:
        guard = RestartLimiter()
        assert all(guard.allows(second) for second in range(10))
        assert not guard.allows(10)

    def test_restarts_of_long_ago_do_not_count(self) -> None:
        guard = RestartLimiter()
        assert all(guard.allows(second * 7) for second in range(100))
