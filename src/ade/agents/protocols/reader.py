"""The incremental reader of a run's output, which returns events and a final report. It never raises for invalid
output.
"""

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
_MARGIN = 8_000  # more is kept than shown, so that no secret is cut in half and missed by the mask
_SHOWN_OF_LONG_LINE = 200


class _RecordProtocol(Protocol):
    def read(self, record: Record) -> None: ...


class _LineProtocol(Protocol):
    is_cut: bool

    def line(self, line: OutputPiece) -> None: ...
    def end(self) -> None: ...


class RecordLines:
    """Parses one JSON object per line; other lines are ignored."""

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
        """Do nothing, because each record was read on arrival."""


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
    """Reads the output of one run. The result does not depend on how the bytes are chunked.

    `secrets` are masked in errors and in the kept part of stderr.
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
        """The cost of the run so far, for `excess_of`."""
        return self._facts.spent

    @property
    def is_concluded(self) -> bool:
        """Whether the program has reported that its run succeeded."""
        return self._facts.is_concluded and not self._facts.is_error

    def feed(self, data: bytes) -> list[RunEvent]:
        """Read more of stdout, and return its events."""
        for line in self._cutter.feed(data):
            self._lines.line(line)
        return self._facts.take_events()

    def feed_stderr(self, data: bytes) -> None:
        self._stderr.feed(data)

    def finish(
        self, exit_code: int, *, stopped_for: RunFailure | None = None, stop_message: str = ""
    ) -> tuple[list[RunEvent], RunReport]:
        """Return the last events and the report. `stopped_for`: why ADE stopped the run, if it did; a success stays
        one.
        """
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
        return self._facts.take_events(), self._report(ending)

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
            deferred=facts.deferred if finding is None else None,
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


def _safe(found: str | None) -> str | None:
    """IDs are passed on a command line later, so one that could be parsed as a flag is dropped."""
    return found if found is not None and SAFE_ID.fullmatch(found) else None
