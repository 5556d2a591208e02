"""The transport interface of the client, its calls, and its retry rules. Every transport behaves the same."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from ade.common.calls import Call
from ade.errors import ServerUnreachable
from ade.server.operation import ClientRoute, ETagUse
from ade.server.problems import HttpFault, Problem

if TYPE_CHECKING:
    from ade.common.calls import Portal
    from ade.events.feed_items import Gap
    from ade.events.model import Event
    from ade.tasks.model import OutputLine


class OperationCall(Struct, frozen=True, kw_only=True):
    """One call of an operation, with the types that its function declares."""

    operation: str
    answer: Any  # the response type: a record, Page, VersionedRecord, RawContent, or NoneType
    path: tuple[str, ...] = ()
    query: Struct | None = None
    body: Struct | None = None
    if_match: int | None = None
    key: str | None = None

    @property
    def wait_s(self) -> float:
        """How long the caller wants to wait for a result, from the query or body."""
        said = (getattr(form, name, None) for form in (self.query, self.body) for name in ("wait", "wait_s"))
        return max((float(each) for each in said if isinstance(each, int | float)), default=0.0)

    def checked_key(self) -> str | None:
        """Return the idempotency key. Raises AdeError if it is invalid."""
        if self.key is None:
            return None
        from ade.server.idempotency import read_checked_key  # 2 ms, which calls without a key save

        return read_checked_key(self.key)

    def tag(self, route: "ClientRoute") -> str | None:
        """Return the value of If-Match. If the route requires one, the default is `*`, any version."""
        if self.if_match is None:
            return "*" if route.tag is ETagUse.REQUIRED else None
        return f'"{self.if_match}"'


class EventSubscriptionRequest(Struct, frozen=True, kw_only=True):
    """Which events to follow: those after the seq `after`, or new events by default."""

    after: int | None = None
    types: Sequence[str] = ()
    tasks: Sequence[str] = ()
    queues: Sequence[str] = ()
    names: Sequence[str] = ()
    inboxes: Sequence[str] = ()
    locks: Sequence[str] = ()

    def pairs(self) -> list[tuple[str, str]]:
        """Return the query parameters, without `after`."""
        fields = {
            "type": self.types,
            "task": self.tasks,
            "queue": self.queues,
            "name": self.names,
            "inbox": self.inboxes,
            "lock": self.locks,
        }
        return [(name, value) for name, values in fields.items() for value in values]


class Transport(Protocol):
    """Executes the calls of a client."""

    async def call(self, ask: OperationCall) -> Any:
        """Return the result of the operation. Raises the same AdeError on every transport."""

    def follow_events(self, spec: EventSubscriptionRequest) -> "AsyncGenerator[Event | Gap, None]":
        """Yield events as they happen, and gaps where some might be missing. Ends only with an error."""

    def follow_output(self, task_id: str, after: int) -> "AsyncGenerator[OutputLine, None]":
        """Yield the lines of a task as they are written, until it is final."""

    async def close(self) -> None: ...


# Retry rules: pure functions that return a delay, or None for no retry.


_FIRST_PAUSE_S, _LONGEST_BACKOFF_S = 0.1, 5.0
_SAFE_METHODS = frozenset({"GET", "PUT", "DELETE"})  # idempotent
_UNAVAILABLE = 503


class RetryLimits(Struct, frozen=True, kw_only=True):
    """How often to retry and the longest delay. If a server requests a longer one, the error is raised."""

    repeats: int = 3
    stream_repeats: int = 10  # in a row, to resume a stream that had started
    longest_pause_s: float = 30.0


def is_repeatable(route: ClientRoute, *, has_key: bool, has_tag: bool) -> bool:
    """Return whether a request can be sent again after its response was lost.

    A request with If-Match cannot: its first attempt would have changed the version.
    """
    if has_key or not route.mutates:
        return True
    return route.method in _SAFE_METHODS and not has_tag


def pause_after_break(error: ServerUnreachable, *, times: int, randomness: float) -> float | None:
    """Return the delay after a broken connection, `times` earlier attempts, or None for no retry.

    If the server was never reached, the address is probably wrong, so there is no retry. If it was, it is probably
    restarting.
    """
    return backoff_s(times, randomness) if error.was_sent or times else None


def pause_after_problem(problem: Problem, patience: RetryLimits, *, sent_before: bool) -> float | None:
    """Return the delay after a transient problem: rate limit, restart, or our own first attempt; or None."""
    is_passing = problem.status == _UNAVAILABLE or problem.code == HttpFault.TOO_MANY_REQUESTS
    is_own = problem.code == HttpFault.REQUEST_IN_PROGRESS and sent_before
    if not (is_passing or is_own):
        return None
    pause = _wanted_pause(problem)
    return pause if pause <= patience.longest_pause_s else None


def backoff_s(times: int, randomness: float) -> float:
    """Return the delay after `times` breaks in a row. `randomness` in [0, 1) adds jitter."""
    plain: float = min(_FIRST_PAUSE_S * 2 ** min(times, 16), _LONGEST_BACKOFF_S)
    return plain * (0.5 + randomness)


def _wanted_pause(problem: Problem) -> float:
    told = problem.headers.get("retry-after", "")
    if told.isascii() and told.isdigit():
        return float(told[:9])
    member = problem.more.get("retry_after")
    return float(member) if isinstance(member, int | float) and member >= 0 else 1.0


T = TypeVar("T")


class Section:
    """The base class of the generated client classes, one for each section of the API."""

    _transport: "Transport"
    _portal: "Portal"

    def _call(
        self,
        operation: str,
        answer: type[T],
        *path: str,
        query: "Struct | None" = None,
        body: "Struct | None" = None,
        if_match: int | None = None,
        key: str | None = None,
    ) -> Call[T]:
        ask = OperationCall(
            operation=operation, answer=answer, path=path, query=query, body=body, if_match=if_match, key=key
        )
        return Call(self._transport.call(ask), self._portal)
