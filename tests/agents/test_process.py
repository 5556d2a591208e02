"""A program is run for an agent, and nothing of it is left afterwards, whatever it does and whoever dies."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ade.agents.processes import process as processes_process
from ade.agents.processes import process_tree
from ade.agents.processes.process import ExitCause, ProcessResult, ProcessSpec, run_process
from ade.agents.runs.spec import DirectoryPolicy, ProcessLimits
from ade.errors import ProgramNotStarted
from tests.agents.processes import PATIENCE_S, Printed, ends_within, is_gone, spec_of, unruly

MIB = 1024 * 1024


@pytest.fixture(
    scope="module",
    params=[pytest.param({"use_uvloop": False}, id="asyncio"), pytest.param({"use_uvloop": True}, id="uvloop")],
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Workers use either loop, and each has its own way with pipes."""
    return "asyncio", request.param


class Going:
    """A run that has begun: what its program has said of itself, and how to end it."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.stop = asyncio.Event()
        self.printed = Printed()
        self._said: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(run_process(spec, on_bytes=self._hear, stop=self.stop))

    async def said(self) -> dict[str, Any]:
        return await asyncio.wait_for(self._said, PATIENCE_S)

    async def ended(self) -> ProcessResult:
        return await asyncio.wait_for(self.task, PATIENCE_S)

    async def _hear(self, stream: str, data: bytes) -> None:
        await self.printed(stream, data)
        line, end, _ = self.printed.stdout.partition("\n")
        if end and not self._said.done():
            self._said.set_result(json.loads(line))


@asynccontextmanager
async def going(spec: ProcessSpec) -> AsyncIterator[Going]:
    run = Going(spec)
    try:
        yield run
    finally:
        run.task.cancel()
        await asyncio.wait({run.task}, timeout=PATIENCE_S)


def limits(**changed: Any) -> ProcessLimits:
    return ProcessLimits(**{"time_s": PATIENCE_S, "grace_s": 0.1, **changed})


async def test_the_exit_code_and_both_streams_are_told(tmp_path: Path) -> None:
    command, printed = "echo one; echo two >&2; printf three; exit 3", Printed()

    ended = await run_process(spec_of(tmp_path, "sh", "-c", command), on_bytes=printed)

    assert (ended.why, ended.exit_code, ended.signal, ended.left) == (ExitCause.EXITED, 3, None, 0)
    assert (printed.stdout, printed.stderr) == ("one\nthree", "two\n")


async def test_a_signal_that_ended_the_program_is_told(tmp_path: Path) -> None:
    ended = await run_process(spec_of(tmp_path, "sh", "-c", "kill -SEGV $$"))

    assert (ended.why, ended.exit_code, ended.signal) == (ExitCause.SIGNALLED, None, signal.SIGSEGV)


async def test_a_program_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    async with going(unruly(tmp_path, "stubborn", limits=limits())) as run:
        pid = (await run.said())["pid"]
        run.stop.set()
        ended = await run.ended()

    assert (ended.why, ended.signal) == (ExitCause.STOPPED, signal.SIGKILL)
    assert is_gone(pid)


async def test_a_program_that_heeds_sigterm_has_last_words(tmp_path: Path) -> None:
    async with going(unruly(tmp_path, "polite", limits=limits(grace_s=PATIENCE_S))) as run:
        await run.said()
        run.stop.set()
        ended = await run.ended()

    assert (ended.why, ended.exit_code) == (ExitCause.STOPPED, 7)
    assert run.printed.stdout.endswith("bye\n")


async def test_a_suspended_program_hears_sigterm_too(tmp_path: Path) -> None:
    async with going(unruly(tmp_path, "asleep", limits=limits(grace_s=PATIENCE_S))) as run:
        await run.said()
        run.stop.set()
        ended = await run.ended()

    assert ended.why is ExitCause.STOPPED


async def test_a_run_that_is_stopped_before_it_began_ends_all_the_same(tmp_path: Path) -> None:
    stop = asyncio.Event()
    stop.set()

    ended = await run_process(unruly(tmp_path, "stubborn", limits=limits()), stop=stop)

    assert ended.why is ExitCause.STOPPED


@pytest.mark.parametrize("runaway", ["marked", "unmarked"])
async def test_a_grandchild_does_not_survive_the_end_of_the_program(tmp_path: Path, runaway: str) -> None:
    async with going(unruly(tmp_path, "family", "leave", runaway)) as run:
        said = await run.said()
        ended = await run.ended()

    assert (ended.why, ended.exit_code, ended.left) == (ExitCause.EXITED, 0, 0)
    assert is_gone(said["grandchild"])


async def test_a_grandchild_does_not_survive_a_cancellation(tmp_path: Path) -> None:
    async with going(unruly(tmp_path, "family", "stay", "unmarked", limits=limits())) as run:
        said = await run.said()
        run.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run.ended()

    assert is_gone(said["pid"])
    assert is_gone(said["grandchild"])
    assert is_gone(said["parent"])


async def test_a_second_cancellation_hurries_it(tmp_path: Path) -> None:
    async with going(unruly(tmp_path, "stubborn", limits=limits(grace_s=3600.0))) as run:
        pid = (await run.said())["pid"]
        run.task.cancel()
        done, _ = await asyncio.wait({run.task}, timeout=0)
        run.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run.ended()

    assert not done
    assert is_gone(pid)


async def test_orphans_are_reaped_while_the_program_runs(tmp_path: Path) -> None:
    async with going(unruly(tmp_path, "orphans", "5")) as run:
        said = await run.said()

    assert said == {"reaped": [True] * 5}


@pytest.mark.faults
@pytest.mark.parametrize("runaway", ["marked", "unmarked"])
async def test_nothing_survives_sigkill_of_the_worker_for_two_seconds(tmp_path: Path, runaway: str) -> None:
    with worker(tmp_path, "family", "stay", runaway) as process:
        said = await first_line_of(process)
        process.kill()

        assert ends_within(said["grandchild"], 2.0)
        assert ends_within(said["pid"], 2.0)
        assert ends_within(said["parent"], 2.0)


@pytest.mark.faults
async def test_a_keeper_that_is_killed_takes_the_run_with_it(tmp_path: Path) -> None:
    async with going(unruly(tmp_path, "family", "stay", "marked")) as run:
        said = await run.said()
        os.kill(said["parent"], signal.SIGKILL)
        ended = await run.ended()

    assert (ended.why, ended.exit_code, ended.signal) == (ExitCause.LOST, None, None)
    assert ends_within(said["pid"], 2.0)
    assert ends_within(said["grandchild"], 2.0)


@pytest.mark.faults
async def test_what_worker_and_keeper_leave_is_found_later_and_runs_of_the_living_are_spared(tmp_path: Path) -> None:
    async with going(unruly(tmp_path, "family", "stay", "marked")) as living:
        spared = await living.said()
        with worker(tmp_path, "family", "stay", "marked") as process:
            said = await first_line_of(process)
            os.kill(process.pid, signal.SIGSTOP)  # so that it cannot see to the rest
            os.kill(said["parent"], signal.SIGKILL)
            process.kill()
            process.wait()
            assert ends_within(said["pid"], 2.0)  # the kernel sees to that
            assert not is_gone(said["grandchild"])

            assert await asyncio.to_thread(process_tree.end_abandoned) >= 1

            assert ends_within(said["grandchild"], 2.0)
        assert not is_gone(spared["grandchild"])
        assert not is_gone(spared["pid"])


@pytest.mark.slow
async def test_a_hundred_megabytes_leave_the_memory_as_it_was(tmp_path: Path) -> None:
    seen = largest = 0

    async def count(_stream: str, data: bytes) -> None:
        nonlocal seen, largest
        seen += len(data)
        largest = max(largest, process_tree.resident([os.getpid()]))

    before = process_tree.resident([os.getpid()])
    await run_process(unruly(tmp_path, "flood", "100"), on_bytes=count)

    assert largest - before < 8 * MIB
    assert seen > 100_000_000


@pytest.mark.slow
async def test_an_output_that_somebody_else_keeps_open_is_not_waited_for(tmp_path: Path) -> None:
    held: list[int] = []

    def hold(pid: int) -> None:
        held.append(os.open(f"/proc/{pid}/fd/1", os.O_WRONLY))

    async with going(unruly(tmp_path, "stubborn", limits=limits())) as run:
        hold((await run.said())["pid"])
        run.stop.set()
        ended = await run.ended()
    os.close(held[0])

    assert (ended.why, ended.left) == (ExitCause.STOPPED, 0)
    assert json.loads(run.printed.stdout)


async def test_who_reads_nothing_holds_the_program_back(tmp_path: Path) -> None:
    pids: list[int] = []
    seen = 0

    async def hold(_stream: str, data: bytes) -> None:
        nonlocal seen
        seen += len(data)
        assert await asyncio.to_thread(ends_within, pids[0], PATIENCE_S)

    ended = await run_process(
        unruly(tmp_path, "flood", "100", limits=limits(time_s=1.0)), on_bytes=hold, on_start=pids.append
    )

    assert ended.why is ExitCause.TIME_LIMIT
    assert seen < MIB


async def test_the_time_limit_ends_the_run(tmp_path: Path) -> None:
    ended = await run_process(unruly(tmp_path, "stubborn", limits=limits(time_s=4.0)))

    assert (ended.why, ended.signal) == (ExitCause.TIME_LIMIT, signal.SIGKILL)


async def test_limits_hold_while_the_event_loop_is_stuck(tmp_path: Path) -> None:
    outcomes: list[bool] = []

    async def get_stuck(_stream: str, data: bytes) -> None:
        if data.strip():  # its line end can arrive separately
            outcomes.append(ends_within(json.loads(data)["pid"], PATIENCE_S))

    ended = await run_process(unruly(tmp_path, "stubborn", limits=limits(time_s=4.0)), on_bytes=get_stuck)

    assert outcomes == [True]
    assert ended.why is ExitCause.TIME_LIMIT


@pytest.mark.parametrize("children", ["1", "4"])
async def test_the_memory_limit_counts_all_processes_together(tmp_path: Path, children: str) -> None:
    ended = await run_process(unruly(tmp_path, "hog", "300", children, limits=limits(memory_bytes=200 * MIB)))

    assert (ended.why, ended.signal) == (ExitCause.MEMORY_LIMIT, signal.SIGKILL)


async def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    spec = unruly(tmp_path, "shared", "64", "4", limits=limits(memory_bytes=250 * MIB, time_s=1.5))
    async with going(spec) as run:
        said = await run.said()
        family = [said["pid"], *said["children"]]
        resident, proportional = process_tree.resident(family), process_tree.proportional(family)
        ended = await run.ended()

    assert resident > 250 * MIB
    assert proportional < 150 * MIB
    assert ended.why is ExitCause.TIME_LIMIT  # for its memory it would have been ended earlier


async def test_a_program_sees_nothing_but_what_it_is_given(tmp_path: Path) -> None:
    spec = unruly(tmp_path, "surroundings")
    spec = msgspec.structs.replace(spec, environment={"PATH": "/bin", "GIVEN": "yes"})
    async with going(spec) as run:
        said = await run.said()
        await run.ended()

    assert set(said["environment"]) - {"LC_CTYPE"} == {"PATH", "GIVEN", process_tree.MARK}
    assert said["descriptors"] == [0, 1, 2]
    assert said["cwd"] == str(tmp_path.resolve())
    assert said["session"] != os.getsid(0)


async def test_no_signal_is_ignored_at_the_start(tmp_path: Path) -> None:
    printed = Printed()

    await run_process(spec_of(tmp_path, "grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"), on_bytes=printed)

    usual = (1 << 31) - 1  # those behind are the C library's own
    assert [int(mask, 16) & usual for mask in printed.stdout.split()[1::2]] == [0, 0]


async def test_a_directory_is_made_and_kept(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "one"
    spec = msgspec.structs.replace(spec_of(place, "sh", "-c", "echo work > file"), care=DirectoryPolicy.KEPT)

    await run_process(spec)
    await run_process(spec)

    assert (place / "file").read_text() == "work\n"
    assert place.stat().st_mode & 0o777 == 0o700


async def test_text_goes_in_and_the_end_of_it_is_seen(tmp_path: Path) -> None:
    text, printed = "a prompt, with ümläuts\n" * 50_000, Printed()

    await run_process(spec_of(tmp_path, "wc", "-c", stdin=text), on_bytes=printed)

    assert int(printed.stdout) == len(text.encode())


async def test_a_program_need_not_read_what_it_is_given(tmp_path: Path) -> None:
    ended = await run_process(unruly(tmp_path, "deaf", stdin="x" * 10_000_000))

    assert (ended.why, ended.exit_code) == (ExitCause.EXITED, 0)


async def test_without_text_there_is_nothing_to_read(tmp_path: Path) -> None:
    printed = Printed()

    ended = await run_process(spec_of(tmp_path, "cat"), on_bytes=printed)

    assert (ended.exit_code, printed.stdout) == (0, "")


async def test_secrets_do_not_come_out_even_in_pieces(tmp_path: Path) -> None:
    printed = Printed()
    spec = unruly(tmp_path, "partly", "key: sk-12", "345678, other: hunter2hunter", "2\n", stdin="\n\n\n")
    environment = {**spec.environment, "EXAMPLE_API_KEY": "sk-12345678", "DB_PASSWORD": "hunter2hunter2"}
    await run_process(msgspec.structs.replace(spec, environment=environment), on_bytes=printed)

    assert printed.stdout == "key: [hidden], other: [hidden]\n"


async def test_an_error_of_a_callback_ends_the_run(tmp_path: Path) -> None:
    pids: list[int] = []

    async def fail(_stream: str, _data: bytes) -> None:
        raise RuntimeError("the store is full")

    with pytest.raises(RuntimeError, match="the store is full"):
        await run_process(unruly(tmp_path, "stubborn", limits=limits()), on_bytes=fail, on_start=pids.append)

    assert is_gone(pids[0])


async def test_many_runs_at_once_leave_no_descriptor_behind(tmp_path: Path) -> None:
    await run_process(spec_of(tmp_path, "true"))
    before = len(list(Path("/proc/self/fd").iterdir()))

    endings = await asyncio.gather(*(run_process(spec_of(tmp_path, "true")) for _ in range(20)))
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)  # one more turn: transports close in it

    assert {ended.exit_code for ended in endings} == {0}
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


REFUSED = {
    "not found": (["no-such-program"], r"'no-such-program' was not found in PATH \(.*\); install it"),
    "no such path": (["./no-such-program"], "'./no-such-program' does not exist"),
    "not executable": (["./plain"], "'./plain' may not be executed; make it executable"),
    "no interpreter": (["./lost"], "'./lost' names an interpreter in its first line that was not found"),
    "not for this machine": (["./noise"], "'./noise' is not a program for this machine"),
    "a directory": (["."], "may not be executed"),
    "too long": (["true", "x" * 3_000_000], "give the prompt by stdin"),
    "a NUL": (["true", "a\0b"], "argument 1 of the program 'true' contains a NUL character"),
    "half a character": (["true", "\ud800"], "cannot be written as text"),
    "nothing": ([], "the command is empty"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_started_is_refused_with_a_reason(tmp_path: Path, case: str) -> None:
    command, reason = REFUSED[case]
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    for name, content in (("lost", b"#!/no/such/interpreter\n"), ("noise", b"\x00\x01\x02")):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)

    with pytest.raises(ProgramNotStarted, match=reason):
        await run_process(spec_of(tmp_path, *command))


async def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotStarted, match="missing cannot be used: No such file or directory"):
        await run_process(spec_of(tmp_path / "missing", "true"))


def worker(folder: Path, *command: str) -> "subprocess.Popen[bytes]":
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("worker_program.py")), *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        stdout=subprocess.PIPE,
    )


async def first_line_of(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert process.stdout is not None
    line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), PATIENCE_S)
    said: dict[str, Any] = json.loads(line)
    return said


@pytest.mark.long
@pytest.mark.realtime
async def test_a_blocked_event_loop_is_not_taken_for_a_dead_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ade.agents.processes.process.SHORTEST_SILENCE_S", 6.0)

    connect = processes_process._connect_reader
    blocks = [7.5, 0.0]

    async def block(*given: Any) -> Any:
        time.sleep(blocks.pop(0))  # noqa: ASYNC251  # on purpose, and before the loop can hear of the program's start
        return await connect(*given)

    monkeypatch.setattr(processes_process, "_connect_reader", block)
    spec = spec_of(tmp_path, "sleep", "8", limits=limits(silence_s=6.0))
    ended = await run_process(spec)

    assert (ended.why, ended.exit_code) == (ExitCause.EXITED, 0)
