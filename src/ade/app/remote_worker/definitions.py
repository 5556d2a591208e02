"""What a worker says about the tasks of its app when it makes itself known."""

from collections.abc import Iterable

from ade.core.admission import PREVIEW_SUFFIX, ROLLBACK_SUFFIX
from ade.core.records import Definition
from ade.core.web.forms.workers import NewDefinition
from ade.queue.handlers import Handler

_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


def servable(handlers: Iterable[Handler]) -> tuple[list[Handler], list[str]]:
    """Handlers that a worker behind HTTP may run, and the names of the others.

    What is previewed before each run, or undone, is left to workers on the store: they look once more before they run
    it. Its parts go with it.
    """
    handlers = list(handlers)
    governed = {each.name for each in handlers if each.definition.has_preview or each.definition.has_rollback}
    left = governed | {name + suffix for name in governed for suffix in (PREVIEW_SUFFIX, ROLLBACK_SUFFIX)}
    return [each for each in handlers if each.name not in left], sorted(governed)


def form_of(definition: Definition) -> NewDefinition:
    count, period_ms = definition.rate_count, definition.rate_period_ms
    return NewDefinition(
        name=definition.name,
        queue=definition.queue,
        schema=definition.schema,
        concurrency=definition.concurrency,
        concurrency_per_key=definition.concurrency_per_key,
        rate=None if count is None or period_ms is None else _rate(count, period_ms),
        priority=definition.priority,
        timeout=_seconds(definition.timeout_ms),
        max_attempts=definition.max_attempts,
        backoff=definition.backoff,
        result_ttl=_seconds(definition.result_ttl_ms),
        needs=list(definition.needs),
    )


def _rate(count: int, period_ms: int) -> str:
    """As it is written: (100, 60000) is 100/1m."""
    unit, length_ms = next(each for each in _UNITS_MS if period_ms % each[1] == 0 or each[0] == "s")
    return f"{count}/{max(period_ms // length_ms, 1)}{unit}"


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
