"""Parser for the output of `gemini -p ... -o stream-json`."""

from ade.agents.protocols.base import Record, UsageReported, count_of, id_of, record_of, text_of, written
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.outcome import RunState

_FAILURES = {
    "FatalAuthenticationError": RunFailure.NOT_AUTHENTICATED,
    "FatalInputError": RunFailure.BAD_REQUEST,
    "FatalSandboxError": RunFailure.BAD_REQUEST,
    "FatalConfigError": RunFailure.BAD_REQUEST,
    "FatalTurnLimitedError": RunFailure.TURN_LIMIT,
    "FatalCancellationError": RunFailure.INTERRUPTED,
}


class GeminiProtocol:
    """Parses Gemini output. The response arrives in parts; the result record does not contain it."""

    def __init__(self, facts: RunState) -> None:
        self._facts = facts
        self._answer = facts.gather()
        self._turns = 0
        self._is_its_turn = False

    def read(self, record: Record) -> None:
        match record.get("type"):
            case "init":
                self._facts.identify(record, "session_id", "model")
            case "message":
                self._message(record)
            case "tool_use":
                self._answers()
                arguments = written(record.get("parameters"))
                self._facts.call_tool(id_of(record, "tool_id"), text_of(record, "tool_name"), arguments)
            case "tool_result":
                self._is_its_turn = False
            case "error":  # warnings and errors; the result record shows whether they were recovered from
                self._facts.complain(text_of(record, "message") or "Unknown error")
            case "result":
                self._result(record)

    def _message(self, record: Record) -> None:
        if record.get("role") != "assistant":
            self._is_its_turn = False
            return
        self._answers()
        if text := text_of(record, "content"):
            self._answer.add(text)
            self._facts.say(text, is_part=record.get("delta") is True)

    def _answers(self) -> None:
        """Count a turn for each uninterrupted model response, because the program does not count turns."""
        self._facts.goes_well()
        if not self._is_its_turn:
            self._is_its_turn = True
            self._turns += 1
            self._facts.spend_total(UsageReported(turns=self._turns))

    def _result(self, record: Record) -> None:
        stats = record_of(record, "stats")
        self._facts.duration_ms = count_of(stats, "duration_ms")
        self._facts.spend_total(
            UsageReported(
                tokens=count_of(stats, "total_tokens"),
                input_tokens=count_of(stats, "input_tokens"),
                output_tokens=count_of(stats, "output_tokens"),
                cached_tokens=count_of(stats, "cached"),
            )
        )
        error = record_of(record, "error")
        is_error = record.get("status") != "success" or bool(error)
        if is_error:
            kind = _FAILURES.get(text_of(error, "type") or "")
            self._facts.complain(text_of(error, "message", "type") or "Unknown error", failure=kind)
        self._facts.conclude(self._answer, is_error=is_error)
