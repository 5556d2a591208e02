"""How calls get to where they are carried out. What is asked and answered is the same on every way."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from ade.common.calls import Call
from ade.errors import ServerUnreachable
from ade.server.problems import HttpFault, Problem
from ade.server.routing import ClientRoute

if TYPE_CHECKING:
    from ade.common.calls import Portal
    from ade.events.feed_items import Gap
    from ade.events.model import Event
    from ade.tasks.model import OutputLine


class OperationCall(Struct, frozen=True, kw_only=True):
    """One call of an operation, with the types that its function declares."""

    operation: str
    answer: Any  # the type of what is answered: a record, Page[record], Tagged[record], Content, NoneType
    path: tuple[str, ...] = ()
    query: Struct | None = None
    body: Struct | None = None
    if_match: int | None = None
    key: str | None = None

    @property
    def wait_s(self) -> float:
        """How long the caller wants to wait for what he asks, as his forms say."""
        said = (getattr(form, name, None) for form in (self.query, self.body) for name in ("wait", "wait_s"))
        return max((float(each) for each in said if isinstance(each, int | float)), default=0.0)

    def checked_key(self) -> str | None:
        """Raises AdeError for what can be no key."""
        if self.key is None:
            return None
        from ade.server.idempotency import read_checked_key  # 2 ms, which calls without a key do without

        return read_checked_key(self.key)

    def tag(self, route: "ClientRoute") -> str | None:
        """The value of If-Match. Where one must be given, None stands for whatever version there is."""
        if self.if_match is None:
            from ade.server.routing import ETagUse

            return "*" if route.tag is ETagUse.REQUIRED else None
        return f'"{self.if_match}"'


class EventSubscriptionRequest(Struct, frozen=True, kw_only=True):
    """Which events to follow: those behind `after`, or, without it, those that happen from now on."""

    after: int | None = None
    types: Sequence[str] = ()
    tasks: Sequence[str] = ()
    queues: Sequence[str] = ()
    names: Sequence[str] = ()
    inboxes: Sequence[str] = ()

    def pairs(self) -> list[tuple[str, str]]:
        """As fields of a query, without `after`."""
        fields = {
            "type": self.types,
            "task": self.tasks,
            "queue": self.queues,
            "name": self.names,
            "inbox": self.inboxes,
        }
        return [(name, value) for name, values in fields.items() for value in values]


class Transport(Protocol):
    async def call(self, ask: OperationCall) -> Any:
        """What the operation answers. Raises AdeError: the same one on every way."""

    def follow_events(self, spec: EventSubscriptionRequest) -> "AsyncGenerator[Event | Gap, None]":
        """Events as they happen, and gaps where some may be missing. Ends only by an error."""

    def follow_output(self, task_id: str, after: int) -> "AsyncGenerator[OutputLine, None]":
        """The lines of a task as they are written, until it is final."""

    async def close(self) -> None: ...


# When to ask again, and after which time. Pure: what has happened comes in, a pause or none comes out.


_FIRST_PAUSE_S, _LONGEST_BACKOFF_S = 0.1, 5.0
_SAFE_METHODS = frozenset({"GET", "PUT", "DELETE"})  # twice is as good as once
_UNAVAILABLE = 503


class RetryLimits(Struct, frozen=True, kw_only=True):
    """How often to ask again, and how long to wait for that at most: a server that wants more patience than this is
    told of to the caller."""

    repeats: int = 3
    stream_repeats: int = 10  # in a row, to take a stream up again that had begun
    longest_pause_s: float = 30.0


def is_repeatable(route: ClientRoute, *, has_key: bool, has_tag: bool) -> bool:
    """Whether a request whose answer was lost may be sent again. One that names the version it means may not: its own
    first time would have made another version."""
    if has_key or not route.mutates:
        return True
    return route.method in _SAFE_METHODS and not has_tag


def pause_after_break(error: ServerUnreachable, *, times: int, randomness: float) -> float | None:
    """A server that was never reached is told of at once: it is rather the address that is wrong. One that was asked
    before, `times` times, and has asked for patience or hung up, is about to start anew."""
    return backoff_s(times, randomness) if error.was_sent or times else None


def pause_after_problem(problem: Problem, patience: RetryLimits, *, sent_before: bool) -> float | None:
    """Only what passes by itself within seconds: a rate, a server about to start or stop, one's own first request."""
    is_passing = problem.status == _UNAVAILABLE or problem.code == HttpFault.TOO_MANY_REQUESTS
    is_own = problem.code == HttpFault.REQUEST_IN_PROGRESS and sent_before
    if not (is_passing or is_own):
        return None
    pause = _wanted_pause(problem)
    return pause if pause <= patience.longest_pause_s else None


def backoff_s(times: int, randomness: float) -> float:
    """After so many breaks in a row; `dice` in [0, 1) spreads those who broke together."""
    plain: float = min(_FIRST_PAUSE_S * 2 ** min(times, 16), _LONGEST_BACKOFF_S)
    return plain * (0.5 + randomness)


def _wanted_pause(problem: Problem) -> float:
    told = problem.headers.get("retry-after", "")
    if told.isascii() and told.isdigit():
        return float(told[:9])
    member = problem.more.get("retry_after")
    return float(member) if isinstance(member, int | float) and member >= 0 else 1.0


# What the generated calls stand on.


T = TypeVar("T")


class Section:
    """Calls of one part of the interface."""

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
