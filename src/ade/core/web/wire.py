"""Records as the API writes them, and back: moments as RFC 3339 text, nothing that only a store understands.

For every record type a *wire type* is made once, with the same field names: what is absent, None or empty is left out,
fields that are hidden (`ade.core.web.hiding`) never leave. A field holds a moment if it is an int and named like one.
`datetime` fields, as forms have them, are moments too. The wire types are also what the description of the interface
(OpenAPI) is made of, so that it cannot say anything else than what is sent.

What an event holds depends on its type, so the moments in its payload are found by a table (`ade.core.event_moments`).

Of what is sent to ADE (`body_plan_of`) no field at all may be unknown, however deep, and null says as little as nothing
does. What ADE answers may get new fields, so whoever reads it passes over those that he does not know.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Raw, Struct, UnsetType

from ade.core.events import Event
from ade.core.web.compiling import compiled_back, compiled_out
from ade.core.web.event_payloads import event_inside, event_outside, payload_schema
from ade.core.web.hiding import hidden_of
from ade.core.web.times import read_time, write_time

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
    return name in _MOMENTS or name.endswith("_at")


class Way(NamedTuple):
    """How one type goes over the wire. None: as it is."""

    wire: Any
    out: Convert | None = None
    back: Convert | None = None


class Field(NamedTuple):
    name: str
    out: Convert | None
    back: Convert | None
    kind: Any  # its type in the record
    is_moment: bool
    is_required: bool
    needs_none: bool  # the record has no default for it, and takes None


class Plan(NamedTuple):
    wire: type[Struct]
    fields: tuple[Field, ...]
    record: type[Struct]
    out: Convert  # from a record to its wire form
    back: Convert


def to_wire(record: Struct) -> Struct:
    """What to encode in place of a record."""
    wired: Struct = plan_of(type(record)).out(record)
    return wired


def from_wire(wired: Struct, record: type[R]) -> R:
    """The record again. Raises ValueError for a time that is none."""
    made: R = plan_of(record).back(wired)
    return made


def plan_of(record: Any) -> Plan:
    """Of a Struct type, or of a generic one with its argument."""
    return _plan(record, False)


def body_plan_of(form: type[Struct]) -> Plan:
    """Of what is sent to ADE as a body."""
    return _plan(form, True)


@cache
def _plan(record: Any, is_sent: bool) -> Plan:
    origin = get_origin(record) or record
    given = dict(zip(getattr(origin, "__parameters__", ()), get_args(record), strict=False))
    hints = get_type_hints(origin, include_extras=True)
    kept = [field for field in msgspec.structs.fields(origin) if field.name not in hidden_of(origin)]
    kept.sort(key=lambda field: not _is_required(field, _filled(hints[field.name], given)))  # they come by position
    fields: list[Field] = []
    wired: list[Any] = []
    for field in kept:
        kind = _filled(hints[field.name], given)
        way = _way(kind, field.name, is_sent)
        is_required = _is_required(field, kind)
        needs_none = _has_no_default(field) and not is_required
        fields.append(Field(field.name, way.out, way.back, kind, is_moment(field.name), is_required, needs_none))
        wired.append(_wired(field, way, is_required, is_sent))
    config = origin.__struct_config__
    is_record = is_sent and not config.forbid_unknown_fields  # it is answered too, and then not as strict
    wire = msgspec.defstruct(
        f"Given{name_of(record)}" if is_record else name_of(record),
        wired,
        omit_defaults=True,
        forbid_unknown_fields=is_sent or config.forbid_unknown_fields,
        tag=config.tag,
        tag_field=config.tag_field,
        module=origin.__module__,  # two records of one name are told apart by it
    )
    wire.__doc__ = origin.__doc__
    out, back = compiled_out(wire, fields), compiled_back(origin, fields)
    if origin is Event:
        out, back = _then(event_outside, out), _then(back, event_inside)
    return Plan(wire, tuple(fields), origin, out, back)


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


def _wired(field: Any, way: Way, is_required: bool, is_sent: bool) -> tuple[Any, ...]:
    if is_required:
        return (field.encode_name, way.wire)
    if way.wire is Raw:  # it cannot stand in a union, but an absent field stays at its default
        return (field.encode_name, Raw, None)
    return (field.encode_name, way.wire | None | UnsetType if is_sent else way.wire | UnsetType, UNSET)


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


def _way(kind: Any, name: str, is_sent: bool) -> Way:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bare = _way(arguments[0], name, is_sent)
        return bare if bare.wire is Any else bare._replace(wire=Annotated[(bare.wire, *arguments[1:])])
    if kind is int and is_moment(name):
        return Way(MomentText, write_time, read_time)
    if kind is datetime:
        return Way(MomentText, _from_datetime, _to_datetime)
    if isinstance(origin or kind, type) and issubclass(origin or kind, Struct):
        plan = _plan(kind, is_sent)
        return Way(plan.wire, plan.out, plan.back)
    if origin in (Union, types.UnionType):
        return _union_way(arguments, name, is_sent)
    return _collection_way(kind, name, is_sent)


def _collection_way(kind: Any, name: str, is_sent: bool) -> Way:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (tuple, list, Sequence) and (origin is not tuple or arguments[-1] is Ellipsis):
        return _list_way(_way(arguments[0], name, is_sent), tuple if origin is tuple else list)
    if origin in (frozenset, set, AbstractSet):
        return _list_way(_way(arguments[0], name, is_sent), frozenset)
    if origin in (dict, Mapping):
        return _FREE_WAYS.get(name) or _dict_way(_way(arguments[1], "", is_sent))
    return Way(Any if kind is object else kind)


def _union_way(arguments: tuple[Any, ...], name: str, is_sent: bool) -> Way:
    """Values of several kinds go their ways by what they are."""
    kinds = [each for each in arguments if each is not type(None) and each is not UnsetType]
    ways = [_way(each, name, is_sent) for each in kinds]
    wire: Any = Union[tuple(way.wire for way in ways)]  # noqa: UP007 # made at run time
    changed = [way for way in ways if way.out is not None or way.back is not None]
    if not changed:
        return Way(wire)
    if len(ways) == 1:
        return Way(wire, changed[0].out, changed[0].back)
    out_of = {_bare(kind): way.out for kind, way in zip(kinds, ways, strict=True)}
    back_of = {_bare(way.wire): way.back for way in ways}
    return Way(wire, partial(_by_type, out_of), partial(_by_type, back_of))


def _bare(kind: Any) -> Any:
    """What `type(value)` is of a value of this kind."""
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else get_origin(kind) or kind


def _by_type(converts: Mapping[Any, Convert | None], value: Any) -> Any:
    convert = converts.get(type(value))
    return value if convert is None else convert(value)


def _list_way(way: Way, made: Callable[[Any], Any]) -> Way:
    out, back = way.out, way.back
    return Way(
        list[way.wire],  # type: ignore[name-defined]
        (lambda values: [out(each) for each in values]) if out else (sorted if made is frozenset else list),
        (lambda values: made(back(each) for each in values)) if back else made,
    )


def _dict_way(way: Way) -> Way:
    out, back = way.out, way.back
    return Way(
        dict[str, way.wire],  # type: ignore[name-defined]
        (lambda values: {key: out(each) for key, each in values.items()}) if out else dict,
        (lambda values: {key: back(each) for key, each in values.items()}) if back else None,
    )


def _moments(convert: Convert, kind: type) -> Convert:
    """For a plain dict of a record that has moments in it."""
    return lambda values: {
        key: convert(each) if is_moment(key) and type(each) is kind else each for key, each in values.items()
    }


_FREE_WAYS: Mapping[str, Way] = {  # of plain dicts, by the name of their field
    "risk": Way(Annotated[dict[str, Any], _RISK], _moments(write_time, int), _moments(read_time, str)),
    "facts": Way(dict[str, Any], _moments(write_time, int), _moments(read_time, str)),
    "payload": Way(Annotated[dict[str, Any], Meta(extra_json_schema=payload_schema())]),
}


def _from_datetime(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; add one, for instance tzinfo=timezone.utc")
    return write_time(round(moment.timestamp() * 1000))


def _to_datetime(text: str) -> datetime:
    return datetime.fromtimestamp(read_time(text) / 1000, UTC)
