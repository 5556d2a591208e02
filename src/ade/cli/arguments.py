"""Arguments from the command line: `key=value` read as the task's schema wants it, `key:=JSON` as it is."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ade.core.errors import InvalidArguments

_NO_JSON = (msgspec.DecodeError, UnicodeEncodeError, RecursionError)
_KINDS: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def parse_pairs(pairs: Sequence[str], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Raises InvalidArguments for a pair that is none."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.rstrip(":"):
            raise InvalidArguments(f"{pair[:80]!r} is no argument: write name=value, or name:=JSON for anything else")
        if name.endswith(":"):
            arguments[name[:-1]] = _json(name[:-1], text)
        else:
            arguments[name] = _as_wanted(text, _types_of(name, schema or {}))
    return arguments


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except _NO_JSON as error:
        raise InvalidArguments(f"the value of {name!r} is no JSON ({error}); name=value takes plain text") from None


def _as_wanted(text: str, types: frozenset[str]) -> Any:
    """JSON if it is some, unless text is wanted: `limit=5` is a number, `zip=00501` for a string stays text."""
    try:
        value = msgspec.json.decode(text)
    except _NO_JSON:
        return text
    kind = _KINDS[type(value)]
    fits = kind in types or (kind == "integer" and "number" in types)
    return text if "string" in types and not fits else value


def _types_of(name: str, schema: Mapping[str, Any]) -> frozenset[str]:
    """Which JSON types an argument may have; empty when anything goes or nobody knows."""
    return _types(schema.get("properties", {}).get(name, {}), schema.get("$defs", {}))


def _types(described: Mapping[str, Any], definitions: Mapping[str, Any]) -> frozenset[str]:
    if "$ref" in described:
        return _types(definitions.get(str(described["$ref"]).rpartition("/")[2], {}), definitions)
    kind = described.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(kind)
    if "enum" in described:
        return frozenset(_KINDS.get(type(value), "") for value in described["enum"])
    return frozenset().union(*(_types(choice, definitions) for choice in described.get("anyOf", ())))
