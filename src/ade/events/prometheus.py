"""All metric families, and their text format for Prometheus. The metrics reference is generated from this table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum, auto

from msgspec import Struct

from ade.events.rollups import ATTEMPT_BOUNDS, MS_BOUNDS, Histogram


class MetricKind(StrEnum):
    """The Prometheus metric types in use."""

    COUNTER = auto()  # never decreases, even across restarts
    GAUGE = auto()  # the current value
    HISTOGRAM = auto()


class MetricFamily(Struct, frozen=True, kw_only=True):
    """One metric: its name, type, help text, labels, and histogram bounds."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[int, ...] = ()


_GROUP = ("queue", "name")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})  # other methods share one label
_ROUTE = ("method", "route")
REQUEST_BOUNDS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)  # milliseconds


def _counter(name: str, text: str, labels: tuple[str, ...] = ()) -> MetricFamily:
    return MetricFamily(name=name, kind=MetricKind.COUNTER, help=text, labels=labels)


def _gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> MetricFamily:
    return MetricFamily(name=name, kind=MetricKind.GAUGE, help=text, labels=labels)


def _histogram(name: str, text: str, bounds: tuple[int, ...], labels: tuple[str, ...] = _GROUP) -> MetricFamily:
    return MetricFamily(name=name, kind=MetricKind.HISTOGRAM, help=text, labels=labels, bounds=bounds)


_ALL: Sequence[MetricFamily] = (
    _counter("ade_tasks_enqueued_total", "Tasks that were stored.", _GROUP),
    _counter("ade_tasks_completed_total", "Tasks that completed.", _GROUP),
    _counter("ade_tasks_failed_total", "Tasks that failed for good.", _GROUP),
    _counter("ade_tasks_retried_total", "Runs that failed and are repeated.", _GROUP),
    _counter("ade_tasks_cancelled_total", "Tasks that were cancelled.", _GROUP),
    _counter("ade_tasks_rejected_total", "Tasks that people rejected, or did not answer in time.", _GROUP),
    _histogram("ade_task_wait_ms", "From the moment a task was due to its claim by a worker.", MS_BOUNDS),
    _histogram("ade_task_duration_ms", "From the claim of a run to its end, however it ended.", MS_BOUNDS),
    _histogram("ade_task_attempts", "Attempts that tasks had used up when they completed or failed.", ATTEMPT_BOUNDS),
    _gauge("ade_queue_pending_total", "Tasks that wait for a worker, or to be due.", _GROUP),
    _gauge("ade_queue_delayed_total", "Tasks that are not due yet, in all queues."),
    _gauge("ade_queue_stream_length", "Tasks of the queue that wait for a worker or are with one.", ("queue",)),
    _gauge("ade_queue_oldest_ready_age_ms", "For how long the oldest ready task has been due.", ("queue",)),
    _gauge("ade_tasks_running", "Tasks that workers have.", _GROUP),
    _gauge("ade_dead_letters", "Failed tasks that nobody has dealt with, counted up to 1000."),
    _gauge("ade_approvals_waiting", "Tasks that wait for people."),
    _gauge("ade_approvals_oldest_age_ms", "For how long the oldest of these has been waiting."),
    _gauge("ade_locks_held", "Locks that are held."),
    _gauge("ade_locks_waiting", "Requests for locks that wait in line."),
    _counter("ade_lock_deadlocks_total", "Rings of waiters that were found and opened."),
    _gauge("ade_event_cursor_lag", "Events that a reader of the log has not read, counted up to 5000.", ("reader",)),
    _counter("ade_webhook_failures_total", "Messages to webhooks that did not arrive, each attempt counted."),
    _gauge("ade_agent_queued_tasks", "Waiting tasks that the workers of an agent serve.", ("agent",)),
    _gauge("ade_workers_active_total", "Workers that are at work, without servers that only deliver webhooks."),
    _gauge("ade_workers_dead_total", "Workers that are silent, or whose loop stands still."),
    _gauge("ade_workers_other_version_total", "Live workers whose version of ADE is not the one that answers."),
    _gauge("ade_tasks_without_worker", "Waiting tasks whose name no live worker runs in their queue.", ("name",)),
    _gauge("ade_tokens_expiring_total", "Access tokens that expire within a week."),
    _gauge("ade_tokens_next_expiry_s", "Seconds until the next access token expires; absent if there is none."),
    _counter(
        "ade_http_requests_total", "Requests that this server answered, by route and status.", (*_ROUTE, "status")
    ),
    _histogram(
        "ade_http_request_duration_ms",
        "From the start of a request to the end of its response, or to the start of a stream, on this server.",
        REQUEST_BOUNDS,
        _ROUTE,
    ),
    _gauge("ade_build_info", "Always 1; the label says which version answers.", ("version",)),
)
FAMILIES: Mapping[str, MetricFamily] = {family.name: family for family in _ALL}


# The text format: Prometheus 0.0.4 or, if the client requests it, OpenMetrics 1.0.0.


PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_OPEN_TYPE, _PLAIN_TYPES = "application/openmetrics-text", ("text/plain", "text/*", "*/*")
_TOTAL = "_total"

Labels = tuple[str, ...]  # label values, in the order of the family's labels
Samples = Mapping[Labels, float | Histogram]


def chosen(accept: str) -> str:
    """Return the content type that the `Accept` header prefers."""
    weights = dict(_weights(accept))
    wanted = weights.get(_OPEN_TYPE, 0.0)
    plain = max((weights.get(kind, 0.0) for kind in _PLAIN_TYPES), default=0.0)
    return OPEN if wanted > 0 and wanted >= plain else PLAIN


def _weights(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        weight = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            yield kind, float(weight)
        except ValueError:
            yield kind, 0.0


def written(measured: Mapping[str, Samples], content_type: str) -> str:
    """Format all families in table order, including those without samples."""
    is_open = content_type == OPEN
    lines: list[str] = []
    for name, family in FAMILIES.items():
        shown = name.removesuffix(_TOTAL) if is_open and family.kind is MetricKind.COUNTER else name
        lines += (f"# HELP {shown} {family.help}", f"# TYPE {shown} {family.kind}")
        lines += _samples(family, measured.get(name, {}))
    if is_open:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _samples(family: MetricFamily, samples: Samples) -> Iterator[str]:
    for values, sample in samples.items():
        pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(family.labels, values, strict=True)]
        if isinstance(sample, Histogram):
            yield from _buckets(family, pairs, sample)
        else:
            yield f"{family.name}{_braced(pairs)} {_number(sample)}"


def _buckets(family: MetricFamily, pairs: list[str], histogram: Histogram) -> Iterator[str]:
    count = 0
    for bound, inside in zip((*family.bounds, None), histogram.counts, strict=True):
        count += inside
        end = 'le="+Inf"' if bound is None else f'le="{bound}.0"'
        yield f"{family.name}_bucket{_braced([*pairs, end])} {count}"
    yield f"{family.name}_sum{_braced(pairs)} {histogram.total}"
    yield f"{family.name}_count{_braced(pairs)} {count}"


def _braced(pairs: Iterable[str]) -> str:
    inside = ",".join(pairs)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
