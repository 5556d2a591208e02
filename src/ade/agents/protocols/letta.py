"""Parser for the output of `letta -p --output-format stream-json`."""

from ade.agents.protocols.base import (
    Record,
    RetryReported,
    SessionIdentified,
    UsageReported,
    count_of,
    id_of,
    record_of,
    records_of,
    text_of,
    written,
)
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.outcome import RunState

_CALLS = ("tool_call_message", "approval_request_message")


class LettaProtocol:
    """Parses Letta output. A failed run prints an `error` line and usually no result, which would not clear it."""

    def __init__(self, facts: RunState) -> None:
        self._facts = facts
        self._usages = 0

    def read(self, record: Record) -> None:
        match record.get("type"):
            case "system" if record.get("subtype") == "init":
                self._facts.identify(record, *SessionIdentified.__struct_fields__)
            case "init":  # early releases
                self._facts.identify(record, *SessionIdentified.__struct_fields__)
            case "message":
                self._message(record)
            case "auto_approval":
                self._calls(record)
                self._call(record)  # early releases
            case "retry":
                self._retry(record)
            case "error":
                self._error(record)
            case "result":
                self._result(record)

    def _message(self, record: Record) -> None:
        kind = record.get("message_type")
        if kind == "assistant_message":
            self._facts.goes_well()
            for text in _texts(record):
                self._facts.say(text)
        elif kind in _CALLS:
            self._facts.goes_well()
            self._calls(record)
        elif kind == "usage_statistics":
            self._usages += 1  # one per request of the run
            self._facts.spend_step(str(self._usages), _usage(record))

    def _calls(self, record: Record) -> None:
        for call in (*records_of(record, "tool_calls"), record_of(record, "tool_call")):
            self._call(call)

    def _call(self, call: Record) -> None:
        arguments = call.get("arguments", call.get("tool_args"))
        self._facts.call_tool(id_of(call, "tool_call_id"), text_of(call, "name", "tool_name"), written(arguments))

    def _retry(self, record: Record) -> None:
        notice = RetryReported(
            reason=text_of(record, "reason") or "unknown",
            attempt=count_of(record, "attempt"),
            max_attempts=count_of(record, "max_attempts"),
            delay_ms=count_of(record, "delay_ms"),
        )
        self._facts.retry(notice)

    def _error(self, record: Record) -> None:
        nested = record_of(record, "api_error")
        messages = dict.fromkeys(
            text
            for text in (
                text_of(record, "error", "message"),
                text_of(nested, "message"),
                text_of(nested, "detail"),
            )
            if text
        )
        self._facts.complain("\n".join(messages) or "Unknown error", failure=_failure(record))
        self._facts.is_error = True

    def _result(self, record: Record) -> None:
        self._facts.identify(record, *SessionIdentified.__struct_fields__)
        usage = record_of(record, "usage")
        self._facts.spend_total(_usage(usage, turns=count_of(record, "num_turns")))
        self._facts.duration_ms = count_of(record, "duration_ms")
        result = text_of(record, "result")
        is_bad = record.get("is_error") is True or record.get("subtype") in ("error", "interrupted")
        if is_bad:
            kind = RunFailure.INTERRUPTED if record.get("subtype") == "interrupted" else _failure(record)
            reason = text_of(record, "stop_reason")
            self._facts.complain(self._facts.complaint or result or reason or "Unknown error", failure=kind)
        self._facts.conclude(result or "", is_error=is_bad or self._facts.is_error)


def _failure(record: Record) -> RunFailure | None:
    return RunFailure.TURN_LIMIT if record.get("stop_reason") == "max_steps" else None


def _usage(usage: Record, turns: int | None = None) -> UsageReported:
    return UsageReported(
        tokens=count_of(usage, "total_tokens"),
        input_tokens=count_of(usage, "prompt_tokens"),
        output_tokens=count_of(usage, "completion_tokens"),
        cached_tokens=count_of(usage, "cached_input_tokens"),
        turns=count_of(usage, "step_count") if turns is None else turns,
    )


def _texts(record: Record) -> list[str]:
    """Return the texts; content is a string or a list of parts."""
    if text := text_of(record, "content"):
        return [text]
    return [text for part in records_of(record, "content") if (text := text_of(part, "text"))]
