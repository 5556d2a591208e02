"""How calls get to where they are carried out. What is asked and answered is the same on every way."""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from ade.core.events import Event
    from ade.core.feeds.items import Gap
    from ade.core.records import OutputLine
    from ade.core.web.routing import Route


class Ask(Struct, frozen=True, kw_only=True):
    """One call. The names are those of the operation (`ade.core.web.routes`); the forms are of `ade.core.web.forms`."""

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
        from ade.core.web.idempotency import read_key
        from ade.core.web.problems import RequestRefused
        from ade.core.web.raising import error_of_refusal

        try:
            return read_key(self.key)
        except RequestRefused as refused:
            raise error_of_refusal(refused) from None

    def tag(self, route: "Route") -> str | None:
        """The value of If-Match. Where one must be given, None stands for whatever version there is."""
        if self.if_match is None:
            from ade.core.web.routing import Tag

            return "*" if route.tag is Tag.REQUIRED else None
        return f'"{self.if_match}"'


class EventWish(Struct, frozen=True, kw_only=True):
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
    async def call(self, ask: Ask) -> Any:
        """What the operation answers. Raises AdeError: the same one on every way."""

    def follow_events(self, wish: EventWish) -> "AsyncGenerator[Event | Gap, None]":
        """Events as they happen, and gaps where some may be missing. Ends only by an error."""

    def follow_output(self, task_id: str, after: int) -> "AsyncGenerator[OutputLine, None]":
        """The lines of a task as they are written, until it is final."""

    async def close(self) -> None: ...
