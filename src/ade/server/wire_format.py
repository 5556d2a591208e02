"""The JSON form of records: conversion to and from wire types, with times as RFC 3339 text and no private fields.

For every record type, a *wire type* with the same field names is generated once. It omits fields that are absent, None,
or empty, and never contains private fields. A field is a time if it is an int with the name of a time field, or a
`datetime`. The OpenAPI document is generated from the same wire types, so it always matches what is sent. The payload
of an event depends on its type, so a table (`ade.events.model`) lists the times in it.

A request body (`body_plan_of`) rejects unknown fields at every depth, and null means the same as an absent field. A
client ignores unknown fields of a response, because ADE can add fields.

A field has the same name in requests and responses. A form whose Python field has another name lists it in
`json_names`; a request can use that other name as well, because it was once the only one.
"""

import re
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta, timezone
from functools import cache, lru_cache, partial
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Raw, Struct, UnsetType, structs

from ade.events.model import MOMENTS, Event, with_moments
from ade.server.redaction import private_fields_of
from ade.server.request_types import EarlierNames, from_ms, is_in_ms, to_ms, type_in_ms
from ade.tasks.admission import LAST_MOMENT

# For each record type, two generated functions convert it to its wire form and back. Lists are long and forms have many
# fields, so decisions that depend only on the type are made once, as in `dataclasses`.


def compiled_out(wire: type[Struct], fields: "Sequence[CodecField]") -> Callable[[Any], Any]:
    """Generate `record -> wire form`, with the same fields in the same order.

    The generated source contains only Struct field names, so it cannot contain foreign code.
    """
    known: dict[str, Any] = {"Wire": wire, "UNSET": UNSET}
    arguments = []
    for number, field in enumerate(fields):
        known[f"out_{number}"] = field.out
        known[f"absent_{number}"] = _absent(wire, field.wire_name)
        arguments.append(_expression(number, field))
    source = f"def out(record):\n    return Wire({', '.join(arguments)})\n"
    exec(source, known)  # only our own field names, see the docstring
    made: Callable[[Any], Any] = known["out"]
    return made


def compiled_back(record: type[Struct], fields: "Sequence[CodecField]") -> Callable[[Any], Any]:
    """Generate `wire form -> record`. Absent and None fields get the default of the record, if any."""
    known: dict[str, Any] = {"Record": record, "UNSET": UNSET}
    lines = ["def back(wire):", "    given = {}"]
    for number, field in enumerate(fields):
        known[f"back_{number}"] = field.back
        value = "value" if field.back is None else f"back_{number}(value)"
        lines += [
            f"    if (value := wire.{field.wire_name}) is not None and value is not UNSET:",
            f"        given[{field.name!r}] = {value}",
        ]
        if field.needs_none or field.is_required:  # a required field can be None only if its type is Any
            lines += ["    else:", f"        given[{field.name!r}] = None"]
    source = "\n".join([*lines, "    return Record(**given)"])
    exec(source, known)  # as above
    made: Callable[[Any], Any] = known["back"]
    return made


def _absent(wire: type[Struct], name: str) -> Any:
    """The default of a field, which stands for an absent value."""
    index = wire.__struct_fields__.index(name) - len(wire.__struct_fields__)
    defaults = wire.__struct_defaults__
    return defaults[index] if -index <= len(defaults) else None


def _expression(number: int, field: "CodecField") -> str:
    sent = f"out_{number}(value)" if field.out is not None else "value"
    empty = ["value is None"] if field.is_required and field.out is not None else _emptiness(field)
    if not empty:
        return sent.replace("value", f"record.{field.name}")
    first, *others = (f"absent_{number} if {each} else " for each in empty)
    first = first.replace("value", f"(value := record.{field.name})")
    return f"{first}{''.join(others)}{sent}"


def _emptiness(field: "CodecField") -> list[str]:
    """The conditions under which a field is omitted, as far as its type allows them."""
    if field.is_required:
        return []
    kinds = _alternatives(field.kind)
    may_be_anything = Any in kinds or object in kinds
    conditions = {
        "value is None": type(None) in kinds,
        "value is UNSET": UnsetType in kinds,
        "value == 0": field.is_moment,
        "value == ()": tuple in kinds or Sequence in kinds,
    }
    return [text for text, holds in conditions.items() if holds or may_be_anything]


def _alternatives(kind: Any) -> set[Any]:
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return set().union(*map(_alternatives, get_args(kind)))
    return {get_origin(kind) or kind}


# Times: RFC 3339 in UTC with milliseconds in the API, integer milliseconds inside ADE. A ValueError of `read_time`
# becomes 422 for a body and 400 for a query parameter.


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND, _SECOND = timedelta(milliseconds=1), timedelta(seconds=1)


def read_time(text: str) -> int:
    """Return milliseconds since 1970, rounded down. Raises ValueError, also for a time without an offset."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text[:60]!r} is not a time: write it as in RFC 3339, with the offset: 2026-01-31T12:00:00Z or"
            " 2026-01-31T13:00:00.250+01:00"
        )
    *fields, fraction, _zulu, sign, hours, minutes = match.groups()
    year, month, day, hour, minute, second = map(int, fields)
    try:
        offset = _offset(sign, hours, minutes)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=offset)
    except ValueError as error:
        raise ValueError(f"{text[:60]!r} is not a time: {error}") from None
    at = (moment - _EPOCH) // _MILLISECOND + int((fraction or "0").ljust(3, "0")[:3])
    if not 0 <= at <= LAST_MOMENT:
        raise ValueError(f"{text[:60]!r} is out of range: times are from 1970 to the end of the year 9999")
    return at


def _offset(sign: str | None, hours: str | None, minutes: str | None) -> timezone:
    if sign is None or hours is None or minutes is None:
        return UTC
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError("an offset is at most 23:59")
    away = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-away if sign == "-" else away)


@lru_cache(maxsize=4_096)  # records repeat times, and the same lists are requested again
def write_time(at: int) -> str:
    """Return RFC 3339 text that `read_time` accepts, of fixed length, so that texts sort like times."""
    if not 0 <= at <= LAST_MOMENT:
        raise ValueError(f"{at} is out of range: times are from 1970 to the end of the year 9999")
    return f"{_second(at // 1000)}.{at % 1000:03d}Z"


@lru_cache(maxsize=4_096)  # most times in a response are close together
def _second(seconds: int) -> str:
    return f"{_EPOCH + seconds * _SECOND:%Y-%m-%dT%H:%M:%S}"


def event_to_wire(event: Event) -> Event:
    """Return the event with the times in its payload as RFC 3339 text."""
    payload = with_moments(event.type, event.payload, _written)
    return event if payload is event.payload else structs.replace(event, payload=payload)


def event_from_wire(event: Event) -> Event:
    """Reverse `event_to_wire`. Raises ValueError for an invalid time."""
    read = with_moments(event.type, event.payload, _read)
    return event if read is event.payload else structs.replace(event, payload=read)


def _written(value: object) -> object:
    """Leave other values unchanged: an audit copy can contain anything, and must still be shown."""
    return write_time(value) if type(value) is int and 0 <= value <= LAST_MOMENT else value


def _read(value: object) -> object:
    return read_time(value) if isinstance(value, str) else value


def payload_schema() -> dict[str, Any]:
    """Return the JSON schema of event payloads of all types: the fields that are times."""
    moment = {"type": "string", "format": "date-time"}
    properties: dict[str, Any] = {}
    for place in sorted({place for places in MOMENTS.values() for place in places}):
        *outer, name = place
        inside = properties
        for each in outer:
            inside = inside.setdefault(each, {"type": "object", "properties": {}})["properties"]
        inside[name] = moment
    return {"properties": properties}


R = TypeVar("R", bound=Struct)
Convert = Callable[[Any], Any]
MomentText = Annotated[
    str, Meta(extra_json_schema={"format": "date-time", "pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-"})
]
_RISK = Meta(
    extra_json_schema={
        "properties": {
            "score": {"type": "number", "minimum": 0, "maximum": 100},
            "level": {"enum": ["low", "medium", "high", "critical"]},
            "assessed_at": {"type": "string", "format": "date-time"},
        }
    }
)
_MOMENTS = frozenset(
    {"at", "run_after", "deadline", "valid_until", "not_before", "not_after", "since", "until", "failing_since"}
)


def is_moment(name: str) -> bool:
    """Return whether an int field of this name is a time."""
    return name in _MOMENTS or name.endswith("_at")


class Codec(NamedTuple):
    """The wire type of one type and its conversions. None: no conversion."""

    wire: Any
    out: Convert | None = None
    back: Convert | None = None


class CodecField(NamedTuple):
    """One field of a record and its conversions."""

    name: str
    wire_name: str  # in JSON
    out: Convert | None
    back: Convert | None
    kind: Any  # its type in the record
    is_moment: bool
    is_required: bool
    needs_none: bool  # the record has no default for it, and accepts None
    is_none: bool  # by default; a type such as Raw does not say so


class CodecPlan(NamedTuple):
    """The wire type of a record type and its conversions."""

    wire: type[Struct]
    fields: tuple[CodecField, ...]
    record: type[Struct]
    out: Convert  # from a record to its wire form
    back: Convert
    earlier: EarlierNames  # of its fields


_OF_EVERY_STORED_RECORD = frozenset({"created_at", "updated_at"})  # 0 only before it is stored


def is_always_sent(field: CodecField) -> bool:
    """Return whether a response always contains this field."""
    if field.is_required or field.name in _OF_EVERY_STORED_RECORD:
        return True
    return not field.is_none and not _emptiness(field)


def to_wire(record: Struct) -> Struct:
    """Return the wire form of a record, ready to encode."""
    wired: Struct = plan_of(type(record)).out(record)
    return wired


def external(value: Any) -> Any:
    """Return a value with every record in it in wire form. All interfaces use this one form."""
    if isinstance(value, Struct):
        return to_wire(value)
    if isinstance(value, list | tuple | AbstractSet):
        return [external(each) for each in value]
    if isinstance(value, Mapping):
        return {name: external(each) for name, each in value.items()}
    return value


def members_of(record: Struct) -> dict[str, Raw]:
    """Return the JSON members of a record, for a document that adds members of its own."""
    return msgspec.json.decode(msgspec.json.encode(to_wire(record)), type=dict[str, Raw])


def from_wire(wired: Struct, record: type[R]) -> R:
    """Return the record of a wire form. Raises ValueError for an invalid time."""
    made: R = plan_of(record).back(wired)
    return made


def plan_of(record: Any) -> CodecPlan:
    """Return the plan of a Struct type, or of a generic one with its argument."""
    return _plan(record, False)


def body_plan_of(form: type[Struct]) -> CodecPlan:
    """Return the plan of a request body."""
    return _plan(form, True)


@cache
def _plan(record: Any, is_sent: bool) -> CodecPlan:
    origin = get_origin(record) or record
    given = dict(zip(getattr(origin, "__parameters__", ()), get_args(record), strict=False))
    hints = get_type_hints(origin, include_extras=True)
    kept = [field for field in msgspec.structs.fields(origin) if field.name not in private_fields_of(origin)]
    kept.sort(key=lambda field: not _is_required(field, _filled(hints[field.name], given)))  # they are positional
    names: Mapping[str, str] = getattr(origin, "json_names", {})
    fields: list[CodecField] = []
    wired: list[Any] = []
    for field in kept:
        kind = _filled(hints[field.name], given)
        name = names.get(field.name, field.encode_name)
        way = _way(kind, field.name, is_sent)
        if is_in_ms(field.name, name):
            way = Codec(type_in_ms(way.wire), to_ms, from_ms)
        is_required = _is_required(field, kind)
        needs_none = _has_no_default(field) and not is_required
        flags = is_moment(field.name), is_required, needs_none, field.default is None
        fields.append(CodecField(field.name, name, way.out, way.back, kind, *flags))
        wired.append(_wired(name, way, is_required, is_sent))
    config = origin.__struct_config__
    is_record = is_sent and not config.forbid_unknown_fields  # also a response type, which is less strict
    wire = msgspec.defstruct(
        f"Given{name_of(record)}" if is_record else name_of(record),
        wired,
        omit_defaults=True,
        forbid_unknown_fields=is_sent or config.forbid_unknown_fields,
        tag=config.tag,
        tag_field=config.tag_field,
        module=origin.__module__,  # distinguishes records of the same name
    )
    wire.__doc__ = origin.__doc__
    out, back = compiled_out(wire, fields), compiled_back(origin, fields)
    if origin is Event:
        out, back = _then(event_to_wire, out), _then(back, event_from_wire)
    inner = {field.wire_name: each for field in fields for each in _earlier_names_in(field.kind, is_sent)}
    return CodecPlan(wire, tuple(fields), origin, out, back, EarlierNames(names, inner))


def _earlier_names_in(kind: Any, is_sent: bool) -> list[EarlierNames]:
    """The earlier names of fields of a record in this type, if there are any."""
    origin = get_origin(kind) or kind
    if isinstance(origin, type) and issubclass(origin, Struct):
        earlier = _plan(kind, is_sent).earlier
        return [earlier] if any(earlier) else []
    return [found for each in get_args(kind) for found in _earlier_names_in(each, is_sent)]


def _then(first: Convert, second: Convert) -> Convert:
    return lambda value: second(first(value))


def _has_no_default(field: Any) -> bool:
    return field.default is NODEFAULT and field.default_factory is NODEFAULT


def _is_required(field: Any, kind: Any) -> bool:
    return _has_no_default(field) and type(None) not in get_args(kind)


def name_of(record: Any) -> str:
    """`Task`, and `TaskPage` for `Page[Task]`."""
    inner = "".join(name_of(each) for each in get_args(record))
    return f"{inner}{(get_origin(record) or record).__name__}"


def _wired(name: str, way: Codec, is_required: bool, is_sent: bool) -> tuple[Any, ...]:
    if is_required:
        return (name, way.wire)
    if way.wire is Raw:  # not allowed in a union, but an absent field keeps its default
        return (name, Raw, None)
    return (name, way.wire | None | UnsetType if is_sent else way.wire | UnsetType, UNSET)


def _filled(kind: Any, given: Mapping[Any, Any]) -> Any:
    """A type with its variables filled in."""
    if kind in given:
        return given[kind]
    arguments = get_args(kind)
    if not given or not arguments or get_origin(kind) is Annotated:
        return kind
    filled = tuple(_filled(each, given) for each in arguments)
    if isinstance(kind, types.UnionType) or get_origin(kind) is Union:
        return Union[filled]  # noqa: UP007 # made at run time
    return get_origin(kind)[filled]


def _way(kind: Any, name: str, is_sent: bool) -> Codec:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (Any, object) or isinstance(kind, TypeVar):  # such as the items of a Page: convert by value
        return Codec(Any, external)
    if origin is Annotated:
        bare = _way(arguments[0], name, is_sent)
        return bare if bare.wire is Any else bare._replace(wire=Annotated[(bare.wire, *arguments[1:])])
    if kind is int and is_moment(name):
        return Codec(MomentText, write_time, read_time)
    if kind is datetime:
        return Codec(MomentText, _from_datetime, _to_datetime)
    if isinstance(origin or kind, type) and issubclass(origin or kind, Struct):
        plan = _plan(kind, is_sent)
        return Codec(plan.wire, plan.out, plan.back)
    if origin in (Union, types.UnionType):
        return _union_way(arguments, name, is_sent)
    return _collection_way(kind, name, is_sent)


def _collection_way(kind: Any, name: str, is_sent: bool) -> Codec:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (tuple, list, Sequence) and (origin is not tuple or arguments[-1] is Ellipsis):
        return _list_way(_way(arguments[0], name, is_sent), tuple if origin is tuple else list)
    if origin in (frozenset, set, AbstractSet):
        return _list_way(_way(arguments[0], name, is_sent), frozenset)
    if origin in (dict, Mapping):
        return _FREE_WAYS.get(name) or _dict_way(_way(arguments[1], "", is_sent))
    return Codec(kind)


def _union_way(arguments: tuple[Any, ...], name: str, is_sent: bool) -> Codec:
    """Convert a value of a union by its type."""
    kinds = [each for each in arguments if each is not type(None) and each is not UnsetType]
    ways = [_way(each, name, is_sent) for each in kinds]
    wire: Any = Union[tuple(way.wire for way in ways)]  # noqa: UP007 # made at run time
    changed = [way for way in ways if way.out is not None or way.back is not None]
    if not changed:
        return Codec(wire)
    if len(ways) == 1:
        return Codec(wire, changed[0].out, changed[0].back)
    out_of = {_bare(kind): way.out for kind, way in zip(kinds, ways, strict=True)}
    back_of = {_bare(way.wire): way.back for way in ways}
    return Codec(wire, partial(_by_type, out_of), partial(_by_type, back_of))


def _bare(kind: Any) -> Any:
    """The `type(value)` of a value of this kind."""
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else get_origin(kind) or kind


def _by_type(converts: Mapping[Any, Convert | None], value: Any) -> Any:
    kind = next((base for base in type(value).__mro__ if base in converts), None)
    convert = converts.get(kind)
    return value if convert is None else convert(value)


def _list_way(way: Codec, made: Callable[[Any], Any]) -> Codec:
    out, back = way.out, way.back
    return Codec(
        list[way.wire],  # type: ignore[name-defined]
        (lambda values: [out(each) for each in values]) if out else (sorted if made is frozenset else list),
        (lambda values: made(back(each) for each in values)) if back else made,
    )


def _dict_way(way: Codec) -> Codec:
    out, back = way.out, way.back
    return Codec(
        dict[str, way.wire],  # type: ignore[name-defined]
        (lambda values: {key: out(each) for key, each in values.items()}) if out else dict,
        (lambda values: {key: back(each) for key, each in values.items()}) if back else None,
    )


def _moments(convert: Convert, kind: type) -> Convert:
    """Convert the times in a plain dict of a record."""
    return lambda values: {
        key: convert(each) if is_moment(key) and type(each) is kind else each for key, each in values.items()
    }


_FREE_WAYS: Mapping[str, Codec] = {  # codecs of plain dicts, by field name
    "risk": Codec(Annotated[dict[str, Any], _RISK], _moments(write_time, int), _moments(read_time, str)),
    "facts": Codec(dict[str, Any], _moments(write_time, int), _moments(read_time, str)),
    "payload": Codec(Annotated[dict[str, Any], Meta(extra_json_schema=payload_schema())]),
}


def _from_datetime(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; add one, for instance tzinfo=timezone.utc")
    return write_time(round(moment.timestamp() * 1000))


def _to_datetime(text: str) -> datetime:
    return datetime.fromtimestamp(read_time(text) / 1000, UTC)
