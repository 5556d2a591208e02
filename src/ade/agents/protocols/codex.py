"""Parser for the output of `codex exec --json`."""

import re

from ade.agents.protocols.base import Record, RetryReported, UsageReported, count_of, id_of, record_of, text_of, written
from ade.agents.runs.outcome import RunState

# Item types that are calls, and the fields with their name and arguments.
_ARGUMENTS = {
    "command_execution": "command",
    "file_change": "changes",
    "mcp_tool_call": "arguments",
    "collab_tool_call": "prompt",
    "web_search": "query",
}
_RECONNECTING = re.compile(r"reconnecting\W{0,5}(?P<attempt>\d{1,4})/(?P<most>\d{1,4})", re.IGNORECASE)


class CodexProtocol:
    """Parses Codex output. Errors can be recovered from; the end of the turn shows whether they were."""

    def __init__(self, facts: RunState) -> None:
        self._facts = facts
        self._last_message: str | None = None
        self._turns = 0

    def read(self, record: Record) -> None:
        match record.get("type"):
            case "thread.started":
                self._facts.identify({"session_id": record.get("thread_id")}, "session_id")
            case "turn.started":
                self._turns += 1
                self._facts.spend_total(UsageReported(turns=self._turns))
            case "item.started" | "item.updated" | "item.completed":
                is_done = record.get("type") == "item.completed"
                self._item(record_of(record, "item"), is_done=is_done)
            case "error":
                self._error(text_of(record, "message") or "Unknown error")
            case "turn.failed":
                self._facts.complain(text_of(record_of(record, "error"), "message") or "the turn failed")
                self._facts.conclude(self._last_message, is_error=True)
            case "turn.completed":
                self._facts.spend_total(_usage(record_of(record, "usage")))
                self._facts.conclude(self._last_message or "", is_error=False)

    def _item(self, item: Record, *, is_done: bool) -> None:
        self._facts.goes_well()
        kind = text_of(item, "type") or ""
        if kind == "agent_message" and is_done and (text := text_of(item, "text")):
            self._last_message = text
            self._facts.say(text)
        elif kind in _ARGUMENTS:
            name = ".".join(part for part in (text_of(item, "server"), text_of(item, "tool")) if part) or kind
            self._facts.call_tool(id_of(item, "id"), name, written(item.get(_ARGUMENTS[kind])))

    def _error(self, message: str) -> None:
        found = _RECONNECTING.search(message)
        if found is None:
            self._facts.complain(message)
        else:
            attempt, most = int(found["attempt"]), int(found["most"])
            self._facts.retry(RetryReported(reason=message[:1_000], attempt=attempt, max_attempts=most))


def _usage(usage: Record) -> UsageReported:
    """Return the usage. Input includes cached tokens, and output includes reasoning."""
    inputs, outputs = count_of(usage, "input_tokens"), count_of(usage, "output_tokens")
    known = [part for part in (inputs, outputs) if part is not None]
    return UsageReported(
        tokens=sum(known) if known else None,
        input_tokens=inputs,
        output_tokens=outputs,
        cached_tokens=count_of(usage, "cached_input_tokens"),
    )
