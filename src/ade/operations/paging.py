"""Pages of lists: cursors that tell when they are used with another filter.

A list that fits one page has none of them, so they are loaded when they are needed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from ade.operations.kit import Page

if TYPE_CHECKING:
    from ade.core.web.cursors import Position

T = TypeVar("T")
# A page may be larger or smaller than the one before, and the last two hours are others when it is asked for.
_APART = ("cursor", "limit", "created_from", "created_before")


def filters_of(query: Struct) -> dict[str, Any]:
    """What the query says beside where to go on."""
    from ade.core.web.wire import to_wire

    said: dict[str, Any] = msgspec.to_builtins(to_wire(query))
    return {name: value for name, value in said.items() if name not in _APART}


def position(of_list: str, query: Struct) -> "Position | None":
    """Where to go on; None at the beginning. Raises RequestRefused (400)."""
    cursor: str | None = query.cursor  # type: ignore[attr-defined] # every query of a list has one
    if cursor is None:
        return None
    from ade.core.web.cursors import read_cursor

    return read_cursor(of_list, filters_of(query), cursor)


def page(of_list: str, query: Struct, items: Sequence[T], following: "Position | None") -> Page[T]:
    """`following` is where the next page begins, as the store knows it; None at the end."""
    if following is None:
        return Page(items=items)
    from ade.core.web.cursors import write_cursor

    return Page(items=items, next=write_cursor(of_list, filters_of(query), following))


def cut(of_list: str, query: Struct, items: Sequence[T]) -> Page[T]:
    """A page of a list that is known as a whole; positions are numbers."""
    begin = position(of_list, query) or 0
    begin = begin if isinstance(begin, int) and begin >= 0 else 0
    end = begin + query.limit  # type: ignore[attr-defined] # every query of a list has one
    return page(of_list, query, items[begin:end], end if end < len(items) else None)
