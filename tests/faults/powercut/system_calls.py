"""Run a program under strace and read back which system calls it made, in which order."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_TRACED = (
    "openat,close,lseek,write,pwrite64,ftruncate,fsync,fdatasync,mkdir,unlink,rename"
    # Not expected of the store. They are watched so that the replay can refuse what it does not understand.
    ",open,creat,mkdirat,unlinkat,renameat,renameat2,link,linkat,symlink,symlinkat,rmdir,truncate"
    ",writev,pwritev,pwritev2,copy_file_range,sendfile,sync_file_range,dup,dup2,dup3"
)
_LONGEST_WRITE = 1 << 20  # what is longer is shortened by strace, and refused here
_WHOLE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|\?)")
_BEGUN = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>$")
_ENDED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)\) += (-?\d+|\?)")
_LET_GO = re.compile(r"\d+ +\?\?\?\( <(detached|unfinished) \.\.\.>$")  # a thread that was ended with the program


@dataclass(slots=True)
class SystemCall:
    name: str
    arguments: list[str]
    result: int = -1
    seen: dict[str, int] = field(default_factory=dict)  # for whoever follows the call from begin to end

    def number(self, position: int) -> int:
        return int(self.arguments[position])

    def content(self, position: int) -> bytes:
        """A string argument. Every byte is printed as \\xNN, so nothing in it can be mistaken for a comma."""
        text = self.arguments[position]
        if not text.endswith('"'):
            raise ValueError(f"strace has shortened an argument of {self.name}")
        return bytes.fromhex(text[1:-1].replace("\\x", ""))

    def path(self, position: int) -> str:
        return self.content(position).decode()


@dataclass(frozen=True, slots=True)
class Moment:
    """A system call begins or has ended; other threads may have made theirs in between."""

    call: SystemCall
    ended: bool


@cache
def why_not() -> str | None:
    """Why no program can be traced here, or None when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    with tempfile.NamedTemporaryFile() as output:
        command = _strace(Path(output.name), ["true"])
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if answer.returncode == 0 else f"strace cannot trace here: {answer.stderr.strip()[:300]}"


def trace(program: Sequence[str], output: Path, *, folder: Path, environment: Mapping[str, str]) -> None:
    """Run the program to its end. It must succeed."""
    answer = subprocess.run(
        _strace(output, program), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise RuntimeError(f"the traced program failed ({answer.returncode}): {answer.stderr[-2000:]}")


def _strace(output: Path, program: Sequence[str]) -> list[str]:
    options = ["-f", "--seccomp-bpf", "-qq", "-xx", "-s", str(_LONGEST_WRITE), "-o", str(output)]
    return ["strace", *options, "-e", f"trace={_TRACED}", "-e", "signal=none", *program]


def moments(output: Path) -> Iterator[Moment]:
    """The calls in the order of their lines, which is the order of things: one tracer watches all threads."""
    under_way: dict[str, SystemCall] = {}
    with output.open(encoding="ascii") as lines:
        for line in lines:
            if whole := _WHOLE.match(line):
                call = SystemCall(whole[2], _split(whole[3]), _result(whole[4]))
                yield Moment(call, ended=False)
                yield Moment(call, ended=True)
            elif begun := _BEGUN.match(line.rstrip("\n")):
                call = under_way[begun[1]] = SystemCall(begun[2], _split(begun[3]))
                yield Moment(call, ended=False)
            elif ended := _ENDED.match(line):
                call = under_way.pop(ended[1])
                call.arguments += _split(ended[2])
                call.result = _result(ended[3])
                yield Moment(call, ended=True)
            elif not _LET_GO.match(line) and "+++" not in line and "<unfinished" not in line:
                raise ValueError(f"a line of strace was not understood: {line[:200]}")


def _split(arguments: str) -> list[str]:
    return [argument for argument in arguments.removeprefix(", ").split(", ") if argument]


def _result(text: str) -> int:
    return -1 if text == "?" else int(text)  # "?": the program ended inside the call
