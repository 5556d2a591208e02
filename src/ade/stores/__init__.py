"""Stores: the ports, and their implementations on SQLite and Redis."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

Part = TypeVar("Part")


class _LazyPart:
    """Part of a store that few processes use: loaded on first use, so that short commands do not wait for it."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    @cached_property
    def _part(self) -> object:
        return self._make()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        setattr(self, name, found)  # so that the next access bypasses __getattr__
        return found


def later(make: Callable[[], Part]) -> Part:
    """Return a proxy for a part of a store that is created on the first use of one of its methods."""
    return cast("Part", _LazyPart(make))
