"""Runs a stand-in as the real program would be run: by its profile, as a process, its output read as it comes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from ade.agents.profiles import BUILT_IN, Profile
from ade.agents.protocols.base import RunEvent, secrets_in
from ade.agents.protocols.reader import OutputReader
from ade.agents.runs.command_line import RunAssignment, command_of, environment_of
from ade.agents.runs.outcome import RunReport

HERE = Path(__file__).resolve().parent
CHUNK = 65_536


def profile_of(name: str) -> Profile:
    """The built-in profile with the stand-in in the place of the program."""
    built_in = BUILT_IN[name]
    return replace(built_in, command=(sys.executable, str(HERE / f"{name}.py"), *built_in.command[1:]))


def run(
    profile: Profile | str,
    assignment: RunAssignment | str,
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    keep_events: bool = True,
) -> tuple[list[RunEvent], RunReport]:
    """All events and the report of one run in a folder of its own."""
    profile = profile_of(profile) if isinstance(profile, str) else profile
    command = command_of(profile, RunAssignment(prompt=assignment) if isinstance(assignment, str) else assignment)
    passed = environment_of(profile, {"PATH": "/usr/bin:/bin", **(environment or {})})
    reader = OutputReader(profile, secrets=secrets_in(passed))
    with (folder / "stderr").open("w+b") as errors, (folder / "stdin").open("w+b") as prompt:
        prompt.write(command.stdin or b"")
        prompt.seek(0)
        child = subprocess.Popen(
            command.argv, stdin=prompt, stdout=subprocess.PIPE, stderr=errors, cwd=folder, env=passed
        )
        assert child.stdout is not None
        events: list[RunEvent] = []
        with child.stdout as output:
            while data := os.read(output.fileno(), CHUNK):
                told = reader.feed(data)
                events += told if keep_events else ()
        code = child.wait()
        errors.seek(0)
        reader.feed_stderr(errors.read())
    last, report = reader.finish(code)
    return events + last, report
