"""Reads the output of a run as it comes and says at the end what it was. Never raises for what a program prints."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec.structs import replace

from ade.agents.profiles import Profile, ProtocolName
from ade.agents.protocols.base import (
    LONGEST_LINE,
    LONGEST_TEXT,
    LineSplitter,
    OutputPiece,
    Record,
    RunEvent,
    TextTail,
    ToolCalled,
    UsageReported,
    cut_mark,
    read_record,
    without_secrets,
)
from ade.agents.protocols.claude import ClaudeProtocol
from ade.agents.protocols.codex import CodexProtocol
from ade.agents.protocols.gemini import GeminiProtocol
from ade.agents.protocols.letta import LettaProtocol
from ade.agents.protocols.plain import JsonDocumentProtocol, PlainTextProtocol
from ade.agents.runs.command_line import SAFE_ID
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.outcome import ProcessExit, RunReport, RunState, outcome_of_run

LONGEST_STDERR = 8_000
_MARGIN = 8_000  # more is kept than shown, so that no secret is cut in half and then not known
_SHOWN_OF_LONG_LINE = 200


class _RecordProtocol(Protocol):
    def read(self, record: Record) -> None: ...


class _LineProtocol(Protocol):
    is_cut: bool

    def line(self, line: OutputPiece) -> None: ...
    def end(self) -> None: ...


class RecordLines:
    """One JSON object on each line; other lines mean nothing."""

    def __init__(self, records: _RecordProtocol, facts: RunState) -> None:
        self._records = records
        self._facts = facts
        self.is_cut = False

    def line(self, line: OutputPiece) -> None:
        record = None if line.dropped else read_record(line.data)
        if record is not None:
            self._records.read(record)
        elif not line.is_ended:
            self.is_cut = line.data.lstrip().startswith(b"{")
        elif line.dropped:
            self._facts.long_lines += 1
            head = line.data[:_SHOWN_OF_LONG_LINE].decode("utf-8", "replace")
            left_out = len(line.data) + line.dropped - _SHOWN_OF_LONG_LINE
            self._facts.say(f"{head}{cut_mark(left_out, 'bytes')}")

    def end(self) -> None:
        """Each record was read when it came."""


_RECORDS: Mapping[ProtocolName, type[LettaProtocol | ClaudeProtocol | CodexProtocol | GeminiProtocol]] = {
    ProtocolName.LETTA: LettaProtocol,
    ProtocolName.CLAUDE: ClaudeProtocol,
    ProtocolName.CODEX: CodexProtocol,
    ProtocolName.GEMINI: GeminiProtocol,
}


def _lines_of(protocol: ProtocolName, facts: RunState, longest_line: int) -> _LineProtocol:
    if protocol is ProtocolName.TEXT:
        return PlainTextProtocol(facts)
    if protocol is ProtocolName.JSON:
        return JsonDocumentProtocol(facts, longest_line)
    return RecordLines(_RECORDS[protocol](facts), facts)


class OutputReader:
    """One for each run. The same bytes give the same events and the same report, in whatever pieces they come.

    `secrets` are hidden in errors and in what is kept of stderr.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        secrets: Iterable[str] = (),
        longest_line: int = LONGEST_LINE,
        longest_text: int = LONGEST_TEXT,
    ) -> None:
        self._profile = profile
        self._secrets = tuple(secrets)
        self._facts = RunState(longest_text)
        self._cutter = LineSplitter(longest_line)
        self._lines = _lines_of(profile.protocol, self._facts, longest_line)
        self._stderr = TextTail(LONGEST_STDERR + _MARGIN)

    @property
    def spent(self) -> UsageReported:
        """What the run has cost so far, for `budgets.excess_of`."""
        return self._facts.spent

    @property
    def is_concluded(self) -> bool:
        """Whether the program has said how its run ended, and that it ended well."""
        return self._facts.is_concluded and not self._facts.is_error

    def feed(self, data: bytes) -> list[RunEvent]:
        """More of stdout, and what it tells."""
        for line in self._cutter.feed(data):
            self._lines.line(line)
        return self._facts.told()

    def feed_stderr(self, data: bytes) -> None:
        self._stderr.feed(data)

    def finish(
        self, exit_code: int, *, stopped_for: RunFailure | None = None, stop_message: str = ""
    ) -> tuple[list[RunEvent], RunReport]:
        """The last events, and the report. `stopped_for`: why ADE ended the run, if it did; a success stays one."""
        rest = self._cutter.rest()
        if rest is not None:
            self._lines.line(rest)
        self._lines.end()
        stderr = without_secrets(self._stderr.text, self._secrets)
        ending = ProcessExit(
            exit_code=exit_code,
            stderr=stderr[-LONGEST_STDERR:],
            is_cut=self._lines.is_cut,
            stopped_for=stopped_for,
            stop_message=stop_message,
        )
        return self._facts.told(), self._report(ending)

    def _report(self, ending: ProcessExit) -> RunReport:
        facts, finding = self._facts, outcome_of_run(self._profile, self._facts, ending)
        report = RunReport(
            exit_code=ending.exit_code,
            result=facts.result,
            session_id=_safe(facts.identity.session_id),
            agent_id=_safe(facts.identity.agent_id),
            conversation_id=_safe(facts.identity.conversation_id),
            model=facts.identity.model,
            spent=facts.spent,
            duration_ms=facts.duration_ms,
            tool_calls=tuple(facts.tool_calls),
            tool_call_count=facts.tool_call_count,
            retries=facts.retries,
            deferred=_none_if(finding is not None, facts.deferred),
            stderr=ending.stderr,
            long_lines=facts.long_lines,
        )
        if finding is None:
            return report
        return replace(
            report,
            failure=finding.failure,
            error=without_secrets(finding.message, self._secrets),
            retry_after_ms=finding.retry_after_ms,
            retry_at=finding.retry_at,
        )


def _none_if(is_so: bool, call: ToolCalled | None) -> ToolCalled | None:
    return None if is_so else call


def _safe(found: str | None) -> str | None:
    """Ids go back on a command line; one that could be taken for a flag is none."""
    return found if found is not None and SAFE_ID.fullmatch(found) else None
