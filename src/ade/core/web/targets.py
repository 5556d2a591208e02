"""What a client asks for, as it stands in the first line of a request: the path with its values, and the query."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from ade.core.web.routing import Route
from ade.core.web.wire import to_wire


def target_of(route: Route, values: Sequence[str] = (), query: Struct | None = None) -> str:
    """Every value is one part of the path, whatever is in it."""
    path = route.path
    for name, value in zip(route.parameters, values, strict=True):
        path = path.replace(f"{{{name}}}", quote(value, safe=""), 1)
    pairs = () if query is None else query_pairs(query)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def query_pairs(query: Struct) -> list[tuple[str, str]]:
    """A form as parameters: lists as one for each item, nothing for what is absent."""
    said: dict[str, Any] = msgspec.to_builtins(to_wire(query))
    return [(name, _text(each)) for name, value in said.items() for each in _items(value)]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
