"""The event log, page by page."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import structs

from ade.core.accounts.permissions import Permission
from ade.core.events import Event
from ade.core.feeds.filters import EVERYTHING, EventFilter, compile_filter
from ade.core.web.forms.events import ListEvents
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import page, position

if TYPE_CHECKING:
    from ade.core.accounts.callers import Caller

_PAGE = 500
_MOST = 5_000  # looked at for one answer, so that a filter that nothing fits is answered soon: its cursor goes on


class _Numbered(Protocol):
    @property
    def seq(self) -> int: ...


T = TypeVar("T", bound=_Numbered)
Read = Callable[[int, int], Awaitable[Sequence[T]]]  # what comes after a seq, so many at most
Newest = Callable[[int], Awaitable[Sequence[T]]]  # in their order
Wanted = Callable[[T], bool]


async def list_events(office: Office, asked: Asked, query: ListEvents) -> Page[Event]:
    log = office.stores.events
    is_wanted = compile_filter(seen_by(asked.caller, query.filter()))
    return await looked_through("events", query, log.read, log.newest, is_wanted)


def seen_by(caller: "Caller | None", wanted: EventFilter) -> EventFilter:
    """What this caller sees of it."""
    return wanted if sees_access(caller) else structs.replace(wanted, hides_access=True)


def sees_access(caller: "Caller | None") -> bool:
    """Whether events of sessions, tokens and links are for him, as they are for who operates."""
    return caller is None or Permission.OPERATE in caller.permissions


async def looked_through(
    of_list: str, query: ListEvents, read: Read[T], newest: Newest[T], is_wanted: Wanted[T]
) -> Page[T]:
    """The next ones that are wanted behind a place, or the newest of them. A page may be empty and not the last."""
    begin = position(of_list, query)
    after = begin if isinstance(begin, int) else query.after
    if after is None:
        enough = query.limit if query.filter() == EVERYTHING else _MOST
        looked_at = await newest(enough)
        found = [each for each in looked_at if is_wanted(each)]
        if len(found) < query.limit and len(looked_at) == enough < _MOST:  # some of them are not for this reader
            found = [each for each in await newest(_MOST) if is_wanted(each)]
        return Page(items=found[-query.limit :])
    found, place = await _search(read, after, query.limit, is_wanted)
    return page(of_list, query, found, place)


async def _search(read: Read[T], after: int, limit: int, is_wanted: Wanted[T]) -> tuple[list[T], int | None]:
    """What is wanted, and up to where all was looked at; None at the end."""
    found: list[T] = []
    for _ in range(_MOST // _PAGE):
        looked_at = await read(after, _PAGE)
        for each in looked_at:
            if is_wanted(each):
                found.append(each)
            after = each.seq
            if len(found) == limit:
                return found, after
        if len(looked_at) < _PAGE:
            return found, None
    return found, after
