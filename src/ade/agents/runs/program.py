"""One execution of an agent program: start it, read its output, and stop it at a budget limit. Retries are decided
elsewhere.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ade.agents.processes.output import Stream
from ade.agents.processes.process import ExitCause, ProcessResult, ProcessSpec, run_process
from ade.agents.profiles import Profile
from ade.agents.protocols.base import RunEvent, ToolCalled, secrets_in
from ade.agents.protocols.reader import OutputReader
from ade.agents.runs.command_line import RunAssignment, command_of, environment_of
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.files import Transcript
from ade.agents.runs.hooks import HookServer
from ade.agents.runs.model import Budget, BudgetExcess, excess_of
from ade.agents.runs.outcome import RunReport
from ade.agents.runs.progress import LiveOutput, LiveProgress
from ade.agents.runs.spec import DirectoryPolicy, ProcessLimits

_MEGABYTE = 1024 * 1024
# With -P nothing is imported from the agent's own directory; otherwise the agent could approve its own calls. A hook
# that crashes denies the call too: exit code 2 is the only one that all programs treat as a denial.
_HOOK = shlex.join([sys.executable, "-P", "-m", "ade.cli", "hook", "pre-tool-use"]) + " || exit 2"


class ProgramEnvironment(Struct, frozen=True, kw_only=True):
    """Working directory, variables, and limits of a program."""

    directory: Path
    care: DirectoryPolicy
    environment: Mapping[str, str] = {}  # requested by the task
    added: Mapping[str, str] = {}  # set by ADE
    budgets: Mapping[str, Budget] = {}
    line: HookServer  # the server for the agent's hooks
    silence_s: float | None = None  # a worker that is suspended for this long has its programs killed


class Program:
    """Runs one program, and turns its output into lines, progress, files, and a final report."""

    def __init__(self, profile: Profile, lines: LiveOutput, progress: LiveProgress, transcript: Transcript) -> None:
        self._profile = profile
        self._lines = lines
        self._progress = progress
        self._transcript = transcript
        self._stop = asyncio.Event()
        self._excess: BudgetExcess | None = None

    async def run(self, assignment: RunAssignment, setting: ProgramEnvironment) -> RunReport:
        """Return the report. Raises ProgramNotStarted, InvalidArguments, and errors of the run context; then no process
        is left.
        """
        spec = self._spec(assignment, setting)
        secrets = setting.line.secrets = secrets_in(spec.environment)
        reader = OutputReader(self._profile, secrets=secrets)

        async def on_bytes(stream: Stream, data: bytes) -> None:
            self._transcript.raw(data)
            if stream == "stderr":
                reader.feed_stderr(data)
                await self._lines.stderr(data)
                return
            await self._tell(reader.feed(data))
            self._look_at_budgets(setting.budgets, reader)

        waiting = asyncio.create_task(self._stop_when(setting.line.must_end))
        try:
            ended = await run_process(spec, on_bytes=on_bytes, stop=self._stop)
        finally:
            waiting.cancel()
        stopped_for, message = self._why(ended)
        events, report = reader.finish(_exit_code(ended), stopped_for=stopped_for, stop_message=message)
        await self._tell(events)
        if stopped_for is None and setting.line.must_end.is_set():  # it was stopped only because of the call
            asked = ToolCalled(id="hook", name=setting.line.asked.tool if setting.line.asked else "")
            return replace(report, failure=None, error=None, deferred=asked)
        return report

    async def _stop_when(self, must_end: asyncio.Event) -> None:
        """Stop a program that cannot wait in its session. It resumes once reviewers have approved the call."""
        await must_end.wait()
        self._stop.set()

    async def _tell(self, events: Sequence[RunEvent]) -> None:
        for event in events:
            await self._progress.take_in(event)
            await self._lines.show(event)

    def _spec(self, assignment: RunAssignment, setting: ProgramEnvironment) -> ProcessSpec:
        profile = self._profile
        command = command_of(profile, assignment, _HOOK)
        environment = environment_of(profile, os.environ, setting.environment)
        memory = None if profile.memory_mb is None else profile.memory_mb * _MEGABYTE
        return ProcessSpec(
            arguments=command.argv,
            directory=setting.directory,
            care=setting.care,
            environment={**environment, **setting.added, **setting.line.environment},
            stdin="" if command.stdin is None else command.stdin.decode("utf-8", "surrogateescape"),
            limits=ProcessLimits(
                time_s=None,  # the task has the timeout
                memory_bytes=memory,
                silence_s=setting.silence_s,
            ),
        )

    def _look_at_budgets(self, budgets: Mapping[str, Budget], reader: OutputReader) -> None:
        """Stop at a budget limit, unless the run is concluded: its cost is spent, and its result is useful."""
        if self._excess is None and not reader.is_concluded:
            self._excess = excess_of(budgets, self._progress.own(reader.spent))
            if self._excess is not None:
                self._stop.set()

    def _why(self, ended: ProcessResult) -> tuple[RunFailure | None, str]:
        if ended.why is ExitCause.MEMORY_LIMIT:
            return RunFailure.OUT_OF_MEMORY, f"it exceeded its memory limit of {self._profile.memory_mb:,} MB"
        if ended.why is ExitCause.LOST:
            return RunFailure.KILLED, "the process that looked after it was killed; what was found of it was ended"
        if ended.why is ExitCause.WORKER_GONE:
            return RunFailure.KILLED, "its worker was silent for longer than a lease, so it was ended"
        if self._excess is not None:
            return RunFailure.BUDGET_EXCEEDED, self._excess.message
        return None, ""


def _exit_code(ended: ProcessResult) -> int:
    if ended.exit_code is not None:
        return ended.exit_code
    return -(ended.signal or 9)
