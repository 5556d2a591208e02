"""Lists that come page by page, as a whole or up to a length."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ade.calls.call import Call
    from ade.client.client import Client
    from ade.core.web.answers import Page

T = TypeVar("T")
_LARGEST = 500  # items that one page may have


async def all_of(api: "Client", listing: "Callable[..., Call[Page[T]]]", **filters: Any) -> list[T]:
    """Everything that a list has: `await all_of(api, api.list_queues)`."""
    return [item async for item in api.every(listing, limit=_LARGEST, **filters)]


async def first_of(
    listing: "Callable[..., Call[Page[T]]]", *path: str, limit: int, largest: int = _LARGEST, **filters: Any
) -> list[T]:
    """The first of it, so many at most; `largest` is what one page may have."""
    return list((await first_page(listing, *path, limit=limit, largest=largest, **filters)).items)


async def first_page(
    listing: "Callable[..., Call[Page[T]]]",
    *path: str,
    limit: int,
    cursor: str | None = None,
    largest: int = _LARGEST,
    **filters: Any,
) -> "Page[T]":
    """The same with where it goes on, however long it is."""
    found: list[T] = []
    while True:
        page = await listing(*path, limit=min(limit - len(found), largest), cursor=cursor, **filters)
        found += page.items
        cursor = page.next
        if cursor is None or len(found) >= limit:
            from ade.core.web.answers import Page

            return Page(items=found, next=cursor)
