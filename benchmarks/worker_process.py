"""A contestant's worker in its own process: `python -m benchmarks.worker_process <contestant> <json>`."""

import os
import subprocess
import sys
import time
from types import TracebackType

from benchmarks.contestants import load
from benchmarks.contract import Options, measure_length

STARTS_FILE = "starts.log"
STOP_SECONDS = 10.0


class WorkerProcess:
    """Starts the worker on entry and ends it, by its own pid, on exit."""

    def __init__(self, contestant: str, options: Options) -> None:
        self._command = [sys.executable, "-m", "benchmarks.worker_process", contestant, options.to_json()]

    def __enter__(self) -> "WorkerProcess":
        # stdout belongs to the one line of the measurement.
        self._process = subprocess.Popen(self._command, stdout=sys.stderr)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"the worker ended by itself, exit code {self._process.returncode}") from error
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid


def main(contestant: str, options: Options) -> None:
    starts = os.open(options.folder / STARTS_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note_start(text: str) -> int:
        now = time.monotonic_ns()  # one clock for all processes of the machine
        os.write(starts, f"{text[:8]} {now}\n".encode())
        return measure_length(text)

    load(contestant).work(options.folder, note_start)


if __name__ == "__main__":
    main(sys.argv[1], Options.from_json(sys.argv[2]))
