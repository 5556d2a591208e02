"""Where the processes of a campaign come from: one that has imported everything and forks at once when asked to.

A thousand starts of Python would take longer than the campaign. The nursery itself opens no store and has no second
thread, so nothing of it can harm its children.
"""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import msgspec

from ade.worker.watchdog import die_with_parent
from tests.faults.campaign.plan import Plan
from tests.faults.campaign.roles import ROLES, writer_name

ROOT = Path(__file__).parents[3]


class Nursery:
    """The side that asks. A child that ended stays known by its pid until `reap` says how it ended."""

    def __init__(self, plan: Plan) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.campaign.nursery", str(os.getpid())],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._say(msgspec.json.encode(plan))

    def start(self, role: str, slot: int) -> int:
        """A new process in this role; answers its pid."""
        return self._ask(["start", role, slot])

    def reap(self, pid: int) -> int:
        """Wait for the end of a child; answers its exit code, negative for a signal."""
        return self._ask(["reap", pid])

    def close(self) -> None:
        """All children that are left end with the nursery."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, request: list[object]) -> int:
        self._say(json.dumps(request).encode())
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the nursery is gone"
        return int(answer)

    def _say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()


def serve() -> None:
    die_with_parent(int(sys.argv[1]))
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=Plan)
    for line in sys.stdin.buffer:
        match json.loads(line):
            case ["start", str(role), int(slot)]:
                answer = _fork(plan, role, slot)
            case ["reap", int(pid)]:
                answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            case unknown:
                raise ValueError(f"the nursery was asked for {unknown!r}")
        print(answer, flush=True)


def _fork(plan: Plan, role: str, slot: int) -> int:
    nursery = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(nursery)
        _redirect(plan.place / f"{writer_name(role, slot)}.log")
        ROLES[role](plan, slot)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    """The nursery's line is not the child's."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    serve()
