"""Parsers for programs without a protocol of their own: one JSON object, or plain text."""

from ade.agents.protocols.base import (
    LONGEST_LINE,
    OutputPiece,
    Record,
    SessionIdentified,
    UsageReported,
    amount_of,
    count_of,
    read_record,
    record_of,
    text_of,
)
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.outcome import RunState

_LIMITS = {"error_max_turns": RunFailure.TURN_LIMIT, "error_max_budget_usd": RunFailure.BUDGET_EXCEEDED}


class PlainTextProtocol:
    """Treats all output as the result; only the exit code shows whether the run succeeded."""

    def __init__(self, facts: RunState) -> None:
        self._facts = facts
        self._output = facts.gather()
        self._lines = 0
        self.is_cut = False

    def line(self, line: OutputPiece) -> None:
        self._output.add(f"\n{line.text}" if self._lines else line.text)
        self._lines += 1
        self._facts.say(line.text)

    def end(self) -> None:
        self._facts.conclude(self._output, is_error=False)


class JsonDocumentProtocol:
    """Parses output that is one JSON object, on one or several lines; lines before it are skipped.

    It reads `result` (or `response`, `text`, `output`), `is_error`, `error`, `subtype`, `usage` or `stats`,
    `total_cost_usd`, `num_turns`, `duration_ms`, `model`, and the IDs of session, agent, and conversation.
    """

    def __init__(self, facts: RunState, longest: int = LONGEST_LINE) -> None:
        self._facts = facts
        self._longest = longest
        self._document = bytearray()
        self._is_whole = True
        self.is_cut = False

    def line(self, line: OutputPiece) -> None:
        self._facts.say(line.text)
        if not self._document and not line.data.lstrip().startswith(b"{"):
            return
        if line.dropped or len(self._document) + len(line.data) > self._longest:
            self._is_whole = False
        if self._is_whole:
            self._document += line.data + b"\n"

    def end(self) -> None:
        if not self._is_whole:
            self._facts.long_lines += 1
            return
        record = read_record(bytes(self._document))
        if record is None:
            record = read_record(bytes(self._document.rstrip().rpartition(b"\n")[2]))
        if record is None:
            self.is_cut = bool(self._document)
            return
        self._read(record)

    def _read(self, record: Record) -> None:
        facts = self._facts
        facts.identify(record, *SessionIdentified.__struct_fields__)
        facts.spend_total(_spent(record))
        facts.duration_ms = count_of(record, "duration_ms")
        result = text_of(record, "result", "response", "text", "output")
        error = record_of(record, "error")
        message = text_of(record, "error") or text_of(error, "message", "type")
        subtype = text_of(record, "subtype") or "success"
        is_error = record.get("is_error") is True or bool(message) or bool(error) or subtype != "success"
        if is_error:
            status = count_of(record, "api_error_status") or count_of(error, "code")
            facts.complain(message or result or subtype, failure=_LIMITS.get(subtype), status=status)
        facts.conclude(result or "", is_error=is_error)


def _spent(record: Record) -> UsageReported:
    usage = record_of(record, "usage") or record_of(record, "stats")
    inputs, outputs = count_of(usage, "input_tokens"), count_of(usage, "output_tokens")
    known = [part for part in (inputs, outputs) if part is not None]
    total = count_of(usage, "total_tokens")
    return UsageReported(
        tokens=total if total is not None else sum(known) if known else None,
        input_tokens=inputs,
        output_tokens=outputs,
        cost_usd=amount_of(record, "total_cost_usd"),
        turns=count_of(record, "num_turns"),
    )
