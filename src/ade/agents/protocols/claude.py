"""Parser for the output of `claude -p --output-format stream-json --verbose`."""

from msgspec.structs import replace

from ade.agents.protocols.base import (
    Record,
    RetryReported,
    ToolCalled,
    UsageReported,
    amount_of,
    clipped,
    count_of,
    id_of,
    record_of,
    records_of,
    text_of,
    written,
)
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.outcome import RunState

_FAILURES = {
    "error_max_turns": RunFailure.TURN_LIMIT,
    "error_max_budget_usd": RunFailure.BUDGET_EXCEEDED,
}
_STATUS_OF_ERROR = {"rate_limit": 429, "overloaded": 529, "authentication_failed": 401, "billing_error": 402}


class ClaudeProtocol:
    """Parses Claude Code output. The error flag of the result record decides: its subtype is success even for API
    errors.
    """

    def __init__(self, facts: RunState) -> None:
        self._facts = facts

    def read(self, record: Record) -> None:
        match record.get("type"):
            case "system":
                self._system(record)
            case "assistant":
                self._assistant(record)
            case "rate_limit_event":
                self._rate_limit(record_of(record, "rate_limit_info"))
            case "result":
                self._result(record)

    def _system(self, record: Record) -> None:
        if record.get("subtype") == "init":
            self._facts.identify(record, "session_id", "model")
        elif record.get("subtype") == "api_retry":
            reason = text_of(record, "error") or "unknown"
            notice = RetryReported(
                reason=reason,
                attempt=count_of(record, "attempt"),
                max_attempts=count_of(record, "max_retries"),
                delay_ms=_whole(amount_of(record, "retry_delay_ms")),
            )
            status = count_of(record, "error_status") or _STATUS_OF_ERROR.get(reason)
            self._facts.retry(notice, status=status)

    def _assistant(self, record: Record) -> None:
        message = record_of(record, "message")
        error = text_of(record, "error")
        if error is not None:  # the program's own error, attributed to the agent
            self._facts.complain(_said(message) or error, status=_STATUS_OF_ERROR.get(error))
            return
        self._facts.goes_well()
        is_nested = record.get("parent_tool_use_id") is not None
        for block in records_of(message, "content"):
            if block.get("type") == "text" and not is_nested and (text := text_of(block, "text")):
                self._facts.say(text)
            elif block.get("type") in ("tool_use", "server_tool_use"):
                self._facts.call_tool(id_of(block, "id"), text_of(block, "name"), written(block.get("input")))
        message_id = id_of(message, "id")  # a message is split into several records, each with the usage of the whole
        if message_id is not None:
            usage = _usage(record_of(message, "usage"))
            self._facts.spend_step(message_id, replace(usage, turns=None if is_nested else 1))

    def _rate_limit(self, info: Record) -> None:
        resets_at = count_of(info, "resetsAt")
        if info.get("status") == "rejected":
            self._facts.status = 429
            self._facts.retry_at = None if resets_at is None else resets_at * 1_000

    def _result(self, record: Record) -> None:
        facts = self._facts
        facts.identify(record, "session_id")
        spent = _largest(_usage(record_of(record, "usage")), _usage_of_models(record_of(record, "modelUsage")))
        cost, turns = amount_of(record, "total_cost_usd"), count_of(record, "num_turns")
        facts.spend_total(replace(spent, cost_usd=cost, turns=turns))
        facts.duration_ms = count_of(record, "duration_ms")
        result = text_of(record, "result")
        subtype = text_of(record, "subtype") or "success"
        is_error = record.get("is_error") is True or subtype != "success"
        if is_error:
            message = _errors(record) or result or facts.complaint or subtype
            status = count_of(record, "api_error_status")
            facts.complain(message, failure=_FAILURES.get(subtype), status=status)
        deferred = record_of(record, "deferred_tool_use")
        call_id, name = id_of(deferred, "id"), text_of(deferred, "name")
        if call_id and name:
            arguments = clipped(written(deferred.get("input")), LONGEST_DEFERRED)
            facts.deferred = ToolCalled(id=call_id, name=name, arguments=arguments)
        facts.conclude(result or "", is_error=is_error)


LONGEST_DEFERRED = 256 * 1024  # reviewers see the call unchanged, so it is cut only where it could not be displayed
_NAMES = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_NAMES_OF_MODELS = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")


def _usage(usage: Record, names: tuple[str, ...] = _NAMES) -> UsageReported:
    fresh, made, read, output = (count_of(usage, name) for name in names)
    inputs = [part for part in (fresh, made, read) if part is not None]
    if not inputs and output is None:
        return UsageReported()
    return UsageReported(
        tokens=sum(inputs) + (output or 0),
        input_tokens=sum(inputs),
        output_tokens=output or 0,
        cached_tokens=read or 0,
    )


def _usage_of_models(models: Record) -> UsageReported:
    """Sum over all models. This includes subagents, which the agent's own usage does not."""
    usages = [_usage(model, _NAMES_OF_MODELS) for model in records_of({"all": list(models.values())}, "all")]
    known = [usage for usage in usages if usage.tokens is not None]
    if not known:
        return UsageReported()
    return UsageReported(
        tokens=sum(usage.tokens or 0 for usage in known),
        input_tokens=sum(usage.input_tokens or 0 for usage in known),
        output_tokens=sum(usage.output_tokens or 0 for usage in known),
        cached_tokens=sum(usage.cached_tokens or 0 for usage in known),
    )


def _largest(*usages: UsageReported) -> UsageReported:
    return max(usages, key=lambda usage: usage.tokens or 0)


def _said(message: Record) -> str:
    return "\n".join(text for block in records_of(message, "content") if (text := text_of(block, "text")))


def _errors(record: Record) -> str:
    errors = record.get("errors")
    return "\n".join(written(each) for each in errors[:20]) if isinstance(errors, list) else ""


def _whole(amount: float | None) -> int | None:
    return None if amount is None else round(amount)
