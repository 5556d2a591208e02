"""A contestant's worker in its own process: `python -m benchmarks.worker_process <contestant> <json> <number>`."""

import subprocess
import sys
from types import TracebackType

from benchmarks.contestants import load
from benchmarks.contract import Options, measure_length
from benchmarks.process_usage import cpu_seconds, resident_megabytes
from benchmarks.starts import Starts

STOP_SECONDS = 10.0


class WorkerProcesses:
    """Starts the workers on entry and ends them, by their own pids, on exit."""

    def __init__(self, contestant: str, options: Options) -> None:
        self._command = [sys.executable, "-m", "benchmarks.worker_process", contestant, options.to_json()]
        self._number = options.processes
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "WorkerProcesses":
        # stdout belongs to the one line of the measurement.
        self._processes = [
            subprocess.Popen([*self._command, str(number)], stdout=sys.stderr) for number in range(self._number)
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        codes = [process.poll() for process in self._processes]
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            _wait_or_kill(process)
        if any(code is not None for code in codes):
            raise RuntimeError(f"a worker ended by itself, exit codes {codes}") from error

    def check(self) -> None:
        """Raises if a worker is gone: nobody needs to wait for what it would have done."""
        if any(process.poll() is not None for process in self._processes):
            raise RuntimeError("a worker ended by itself")

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self._processes)

    def resident_megabytes(self) -> float:
        return sum(resident_megabytes(process.pid) for process in self._processes)


def _wait_or_kill(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(contestant: str, options: Options, number: int) -> None:
    starts = Starts(options.place.folder, options.processes, number)

    def body(text: str) -> int:
        starts.note(text)
        return measure_length(text)

    load(contestant).work(options.place, body)


if __name__ == "__main__":
    main(sys.argv[1], Options.from_json(sys.argv[2]), int(sys.argv[3]))
