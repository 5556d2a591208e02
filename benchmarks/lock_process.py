"""Some of the agents that want one lock: `python -m benchmarks.lock_process <contestant> <json> <number>`.

Says that it is ready, hears from when to when it fights (monotonic nanoseconds), and answers all its turns as JSON.
"""

import asyncio
import json
import subprocess
import sys
import time
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from benchmarks.contestants import load_locks
from benchmarks.contract import AsyncLocks, Options
from benchmarks.turns import Fight, Turn

HEAD_START_SECONDS = 0.1  # until everybody has heard when it begins
READY = "ready\n"


class LockProcesses:
    """Starts the processes on entry and ends them, by their own pids, on exit."""

    def __init__(self, contestant: str, options: Options) -> None:
        self._command = [sys.executable, "-m", "benchmarks.lock_process", contestant, options.to_json()]
        self._options = options
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "LockProcesses":
        pipe = subprocess.PIPE
        self._processes = [
            subprocess.Popen([*self._command, str(number)], stdin=pipe, stdout=pipe, text=True)
            for number in range(self._options.processes)
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def fight(self) -> Fight:
        """When all are ready they begin at the same moment; all that they did."""
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline() != READY:
                raise RuntimeError("a process with agents ended before it was ready")
        began = time.monotonic_ns() + int(HEAD_START_SECONDS * 1e9)
        ended = began + int(self._options.seconds * 1e9)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{began} {ended}\n")
            process.stdin.flush()
        answers = [process.communicate()[0] for process in self._processes]
        if any(process.returncode for process in self._processes):
            raise RuntimeError("a process with agents failed")
        turns = [Turn(*fields) for answer in answers for fields in json.loads(answer)]
        return Fight(turns, began, ended, self._options.agents)


async def _take_part(locks: AbstractAsyncContextManager[AsyncLocks], agents: range) -> list[Turn]:
    turns: list[Turn] = []
    async with locks as opened:
        async with opened.lock("warm-up"):
            pass
        print(READY, end="", flush=True)
        began, ended = map(int, sys.stdin.readline().split())
        await asyncio.sleep((began - time.monotonic_ns()) / 1e9)
        tasks = [asyncio.create_task(_agent(opened, number, ended, turns)) for number in agents]
        left = (ended - time.monotonic_ns()) / 1e9
        await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
    return turns


async def _agent(locks: AsyncLocks, number: int, ended: int, turns: list[Turn]) -> None:
    """Wants nothing but the lock, and wants it again as soon as it has let go."""
    name = f"agent-{number}"
    while (asked := time.monotonic_ns()) < ended:
        turn = Turn(number, asked)
        turns.append(turn)
        async with locks.lock(name):
            turn.got = time.monotonic_ns()
            await asyncio.sleep(0)  # others of this process may run: if one could come in too, it would
            turn.left = time.monotonic_ns()


def main(contestant: str, options: Options, number: int) -> None:
    locks = load_locks(contestant).locks(options.place)
    assert isinstance(locks, AbstractAsyncContextManager), "the agents are coroutines"
    turns = asyncio.run(_take_part(locks, range(number, options.agents, options.processes)))
    print(json.dumps([(turn.agent, turn.asked, turn.got, turn.left) for turn in turns]))


if __name__ == "__main__":
    main(sys.argv[1], Options.from_json(sys.argv[2]), int(sys.argv[3]))
