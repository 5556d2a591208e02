"""Types of the HTTP interface as text and tables: from the OpenAPI document, and the records it was made of."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Struct

from ade.server.openapi import PROBLEMS, description
from ade.server.operation import shape_of
from ade.server.pagination import Page, RawContent
from ade.server.route_table import ROUTES
from ade.server.wire_format import name_of
from docs.generators.tables import table

Schema = Mapping[str, Any]
PAGING = ("cursor", "limit")
_MOST_WORDS = 4  # of a choice that is spelled out where it is used
_IN_BODY = ("NewTask",)  # written out with the route that takes it, and named by others
_FEW = 3  # fields that need no table
_BOUNDS = (("minimum", "maximum", ""), ("minLength", "maxLength", " characters"))


@cache
def schemas() -> Mapping[str, Schema]:
    found: Mapping[str, Schema] = description()["components"]["schemas"]
    return found


def _plain(name: str) -> str:
    """Of a record that is also sent to ADE there are two, of which the one that is sent is stricter."""
    return name.removeprefix("Given") if name not in records() else name


def _schema(name: str) -> Schema:
    return schemas().get(name) or schemas()[f"Given{name}"]


@cache
def records() -> Mapping[str, type[Any]]:
    """Name in the OpenAPI document -> the record or form behind it."""
    found: set[Any] = set()
    for route in ROUTES:
        shape = shape_of(route.operation)
        for kind in (shape.query, shape.body, shape.answer):
            _walk(kind, found)
    by_name: dict[str, type[Any]] = {}
    for kind in found:
        by_name[_name(kind)] = kind
    return by_name


def _name(kind: Any) -> str:
    """Of two records with one name each begins with its module."""
    plain = name_of(kind)
    module = "".join(word.title() for word in kind.__module__.rpartition(".")[2].split("_"))
    return module + plain if module + plain in schemas() else plain


def is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, Struct) or is_dataclass(kind))


def _walk(kind: Any, found: set[Any]) -> None:
    origin = get_origin(kind) or kind
    for each in get_args(kind):
        _walk(each, found)
    if is_record(origin) and origin not in (Page, RawContent) and origin not in found:
        found.add(origin)
        for each in get_type_hints(origin, include_extras=True).values():
            _walk(each, found)


def link(name: str) -> str:
    return f"[{name}](#{'create_task' if name in _IN_BODY else name.lower()})"


def type_text(schema: Schema) -> str:
    """Such as `text, 1 to 200 characters` or `list of [Task](#task)`."""
    if "$ref" in schema:
        return _named(_plain(schema["$ref"].rpartition("/")[2]))
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]  # null says as little as nothing does
        return " or ".join(dict.fromkeys(map(type_text, kinds)))
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("format") == "date-time":
        return "time"
    kind = schema.get("type")
    if kind == "array":
        count = _range(schema, "minItems", "maxItems")
        return f"list{f' ({count})' if count else ''} of {type_text(schema.get('items', {}))}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"object of {type_text(inner)}" if isinstance(inner, Mapping) and inner else "object"
    words = {"string": "text", "number": "number", "integer": "integer", "boolean": "boolean"}
    return words.get(str(kind), "any value") + "".join(_bounds(schema, *each) for each in _BOUNDS)


def _bounds(schema: Schema, low: str, high: str, unit: str = "") -> str:
    told = _range(schema, low, high)
    return f", {told}{unit}" if told else ""


def _range(schema: Schema, low: str, high: str) -> str:
    """Such as `1 to 500`; empty where there is no end."""
    if high not in schema:
        return ""
    least, most = schema.get(low), f"{schema[high]:,}".removesuffix(".0")
    return f"up to {most}" if least is None else f"{least:g} to {most}"


def _named(name: str) -> str:
    schema = _schema(name)
    if "enum" in schema:
        return type_text(schema) if len(schema["enum"]) <= _MOST_WORDS else f"[{name}](#choices)"
    if name.endswith("Page"):
        return f"page of {link(name.removesuffix('Page'))}"
    return link(name)


def fields_table(name: str, schema: Schema, head: str, without: Sequence[str] = ()) -> str:
    """One row for each field, or one line for a few; nothing for what has none."""
    fields = [(field, kind) for field, kind in schema.get("properties", {}).items() if field not in without]
    if not fields:
        return ""
    record = records()[name]
    defaults = _defaults(record, schema.get("required", ()))
    rows = [[f"`{field}`", type_text(kind), defaults.get(field, ""), said(kind)] for field, kind in fields]
    if len(rows) <= _FEW:
        return f"{head.capitalize()}{'s' * (len(rows) > 1)}: {' '.join(map(_in_line, rows))}"
    columns = [True, True, any(row[2] for row in rows), any(row[3] for row in rows)]
    kept = [[cell for cell, is_kept in zip(row, columns, strict=True) if is_kept] for row in rows]
    heads = [head for head, is_kept in zip((head, "type", "default", "meaning"), columns, strict=True) if is_kept]
    return table(heads, kept)


def _in_line(row: Sequence[str]) -> str:
    name, kind, default, meaning = row
    return f"{name} ({kind}{', ' if default else ''}{default}): {meaning}"


def _defaults(record: type[Any], required: Sequence[str]) -> dict[str, str]:
    """Of forms alone: records have all their fields, or leave them out where there is nothing to say."""
    if not (issubclass(record, Struct) and record.__struct_config__.forbid_unknown_fields):
        return {}
    found = dict.fromkeys(required, "required")
    for field in msgspec.structs.fields(record):
        value = field.default if field.default_factory is NODEFAULT else field.default_factory()
        if value not in (NODEFAULT, None, UNSET, "", (), [], {}, frozenset()):
            plain = value.value if isinstance(value, Enum) else value
            name = getattr(record, "json_names", {}).get(field.name, field.encode_name)
            plain = plain * 1000 if name.endswith("_ms") and not field.name.endswith("_ms") else plain
            found[name] = f"`{msgspec.json.encode(plain).decode().removesuffix('.0')}`"
    return found


def docstring(record: Any) -> str:
    return " ".join(inspect.cleandoc(record.__doc__ or "").split())


def said(schema: Schema) -> str:
    return " ".join(inspect.cleandoc(str(schema.get("description", ""))).split())


def http_types() -> str:
    """Every record that is answered, and every part of a body, once."""
    return "\n\n".join(_types())


def _types() -> Iterator[str]:
    whole = _whole_bodies()
    for name in dict.fromkeys(name if "enum" in schema else _plain(name) for name, schema in schemas().items()):
        schema = _schema(name)
        if "enum" in schema or name.endswith("Page") or name in whole or name in PROBLEMS:
            continue
        base = _base(name)
        own = schema if base is None else _without(schema, schemas()[base])
        begin = [said(schema)] if said(schema) else []
        begin += [] if base is None else [f"All fields of {link(base)}, and:"]
        yield "\n\n".join([f"### {name}", *begin, fields_table(name, own, "field")]).rstrip()


def _base(name: str) -> str | None:
    """Another type that this one adds fields to."""
    above = records()[name].__mro__[1:]
    names = {kind: known for known, kind in records().items() if schemas().get(known, {}).get("properties")}
    return next((names[each] for each in above if each in names), None)


def _without(schema: Schema, base: Schema) -> Schema:
    own = {field: kind for field, kind in schema["properties"].items() if field not in base["properties"]}
    return {**schema, "properties": own}


def _whole_bodies() -> set[str]:
    """Forms that are a whole body and nothing else: their routes tell of them."""
    shapes = [shape_of(route.operation) for route in ROUTES]
    bodies = {name_of(shape.body) for shape in shapes if shape.body is not None}
    used = {name for schema in schemas().values() for name in _refs(schema.get("properties", {}))}
    return bodies - used


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for each in node.values():
            yield from _refs(each)
    elif isinstance(node, list):
        for each in node:
            yield from _refs(each)


def http_choices() -> str:
    """Fields that have one of some words."""
    rows = (
        [name, " ".join(f"`{each}`" for each in schema["enum"])]
        for name, schema in schemas().items()
        if len(schema.get("enum", ())) > _MOST_WORDS
    )
    return table(["choice", "words"], rows)
