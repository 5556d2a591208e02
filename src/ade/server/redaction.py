"""Private fields of records, and records without them, as a client of a server receives them.

The result equals writing and reading the record (`ade.server.wire_format`), but it is fast enough for local commands.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct, structs

# Internal to a store. Secrets are marked by type, with `mark_private`.
PRIVATE_FIELDS = frozenset({"lease_until", "heartbeat_until", "args_digest", "runs_until", "seen_until"})
_hidden: dict[type[Struct], frozenset[str]] = {}


def mark_private(record: type[Struct], *fields: str) -> None:
    """Never write these fields of a type and its subclasses. Call it where the type is defined, before it is used."""
    _hidden[record] = _hidden.get(record, frozenset()) | frozenset(fields)


def private_fields_of(record: type[Struct]) -> frozenset[str]:
    """Return the fields of a type that are never written."""
    return PRIVATE_FIELDS.union(*(_hidden.get(base, ()) for base in record.__mro__))


class RedactionPlan(NamedTuple):
    """For a record type: hidden fields and defaults, fields that contain such records, and list fields."""

    hidden: Mapping[str, Callable[[], Any]]
    deep: tuple[str, ...]
    lists: tuple[str, ...]


def redacted(value: Any) -> Any:
    """Return the value, or a copy in which hidden fields have their defaults."""
    if isinstance(value, Struct):
        return _seen_record(value)
    if type(value) in (list, tuple) or isinstance(value, AbstractSet):
        return type(value)(map(redacted, value))
    if isinstance(value, Mapping):
        return {name: redacted(each) for name, each in value.items()}
    return value


def _seen_record(record: Struct) -> Struct:
    inside = redaction_plan_of(type(record))
    changed = {name: default() for name, default in inside.hidden.items()}
    changed |= {name: redacted(getattr(record, name)) for name in inside.deep}
    changed |= {name: [*changed.get(name, getattr(record, name))] for name in inside.lists}
    return structs.replace(record, **changed) if changed else record


@cache
def redaction_plan_of(kind: type[Struct]) -> RedactionPlan:
    """Return the plan of a type. Raises TypeError for a hidden field without a default."""
    hints, hidden = get_type_hints(kind), private_fields_of(kind)
    fields = structs.fields(kind)
    others = [field.name for field in fields if field.name not in hidden]
    return RedactionPlan(
        hidden={field.name: _default(kind, field) for field in fields if field.name in hidden},
        deep=tuple(name for name in others if _is_deep(hints[name], kind)),
        lists=tuple(name for name in others if get_origin(hints[name]) is Sequence),  # decoding yields lists
    )


def _is_deep(hint: Any, within: type[Struct]) -> bool:
    origin = get_origin(hint) or hint
    if isinstance(origin, type) and issubclass(origin, Struct):
        return origin is within or any(redaction_plan_of(origin))
    return hint in (Any, object) or isinstance(hint, TypeVar) or any(_is_deep(each, within) for each in get_args(hint))


def _default(kind: type[Struct], field: Any) -> Callable[[], Any]:
    if field.default_factory is not NODEFAULT:
        made: Callable[[], Any] = field.default_factory
        return made
    if field.default is NODEFAULT:
        raise TypeError(f"{kind.__name__}.{field.name} is hidden, so it must have a default")
    return lambda: field.default
