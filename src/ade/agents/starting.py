"""What is to be run, whether it can be, and the start of its keeper."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from msgspec import Struct

from ade.agents.beats import SHORTEST_SILENCE_S
from ade.agents.launcher import IN_DIRECTORY, Brief
from ade.agents.limits import Care, Limits
from ade.agents.reaping import MARK
from ade.core.errors import ProgramNotStarted

# The keeper runs without site-packages and looks at no variable: nothing of the agent's or the user's slips into it.
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from ade.agents.keeper import main; main()"
_FOR_THE_INTERPRETER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_LONGEST_SHOWN = 200


class ProcessSpec(Struct, frozen=True, kw_only=True):
    """A program, and all it is given."""

    arguments: Sequence[str]  # the program first: a name to be found in its PATH, or a path
    directory: Path
    environment: Mapping[str, str]  # nothing but this
    care: Care = Care.EXISTING  # of the directory
    stdin: str = ""
    secrets: Sequence[str] = ()  # masked in the output, like the values of the environment whose names say so
    limits: Limits = Limits()

    def __repr__(self) -> str:
        """Without prompt and secrets: tracebacks and log lines show this."""
        return f"ProcessSpec({self.arguments[:1]!r}, directory={str(self.directory)!r})"


class Started(NamedTuple):
    """The keeper, and this side's ends of its streams."""

    process: "subprocess.Popen[bytes]"
    line: socket.socket
    stdin: IO[bytes] | None
    stdout: IO[bytes]
    stderr: IO[bytes]


def check(spec: ProcessSpec) -> None:
    """Raise ProgramNotStarted for what the kernel could not take."""
    if not spec.arguments or not spec.arguments[0]:
        raise ProgramNotStarted("there is no program to start: the command is empty")
    for number, argument in enumerate(spec.arguments):
        _check_text(argument, f"argument {number} of {_shown(spec)}")
    for name, value in spec.environment.items():
        _check_text(name + value, f"the variable {name[:_LONGEST_SHOWN]!r} for {_shown(spec)}")
        if not name or "=" in name:
            raise ProgramNotStarted(f"{name[:_LONGEST_SHOWN]!r} cannot be the name of a variable")
    _check_text(str(spec.directory), "the working directory")


def _check_text(text: str, what: str) -> None:
    if "\0" in text:
        raise ProgramNotStarted(f"{what} has a NUL character in it, which no program can be given; leave it out")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ProgramNotStarted(f"{what} cannot be written as text: {error.reason}") from error


def brief_for(spec: ProcessSpec, mark: str) -> Brief:
    environment = {**spec.environment, MARK: mark}
    return Brief(
        [os.fsencode(argument) for argument in spec.arguments],
        {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
        os.fsencode(spec.directory),
        spec.limits.time_s,
        spec.limits.memory_bytes,
        spec.limits.grace_s,
        None if spec.limits.silence_s is None else max(spec.limits.silence_s, SHORTEST_SILENCE_S),
    )


def start_keeper(*, mark: str, with_stdin: bool) -> Started:
    """Blocks for some milliseconds. The keeper starts nothing before it has its brief."""
    ours, theirs = socket.socketpair()
    environment = {name: os.environ[name] for name in _FOR_THE_INTERPRETER if name in os.environ}
    home = str(Path(__file__).parents[2])
    try:
        with theirs:
            process = subprocess.Popen(
                (sys.executable, "-I", "-S", "-c", _BOOT, home, str(theirs.fileno()), str(os.getpid())),
                stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a Ctrl-C is for the worker, which sees to the rest
                env={**environment, MARK: mark},
                cwd="/",  # so that no file system is kept in use
            )
    except BaseException:
        ours.close()
        raise
    assert process.stdout is not None
    assert process.stderr is not None
    return Started(process, ours, process.stdin, process.stdout, process.stderr)


def refusal(spec: ProcessSpec, where: str, number: int) -> ProgramNotStarted:
    """Why the program could not be started, and what to do."""
    program = _shown(spec)
    if where == IN_DIRECTORY:
        return ProgramNotStarted(f"the working directory {spec.directory} cannot be used: {os.strerror(number)}")
    reasons = {
        errno.ENOENT: _not_found(spec),
        errno.EACCES: f"{program} may not be executed; make it executable (chmod +x) or name another program",
        errno.ENOEXEC: f"{program} is no program for this machine; a script needs a first line such as #!/bin/sh",
        errno.E2BIG: f"the arguments of {program} are too long for the kernel; give the prompt by stdin",
    }
    return ProgramNotStarted(reasons.get(number) or f"{program} could not be started: {os.strerror(number)}")


def _not_found(spec: ProcessSpec) -> str:
    program = spec.arguments[0]
    if "/" not in program:
        path = spec.environment.get("PATH", os.defpath)
        return f"{_shown(spec)} was not found in PATH ({path}); install it, or name it by its whole path"
    if (spec.directory / program).exists():
        return (
            f"{_shown(spec)} names an interpreter in its first line that was not found; install it or correct the line"
        )
    return f"{_shown(spec)} does not exist; install it or correct the path"


def _shown(spec: ProcessSpec) -> str:
    return f"the program {spec.arguments[0][:_LONGEST_SHOWN]!r}"
