"""A value of a type, as somebody might send it: where the search for bad ones begins."""

from typing import Any

from msgspec import inspect

_TEXT, _MOMENT = "abcdefgh", "2026-01-31T12:00:00Z"


def sample(kind: Any) -> Any:
    """Plain JSON, with every field that there is."""
    return _of(inspect.type_info(kind))


def _of(kind: inspect.Type) -> Any:
    match kind:
        case inspect.Metadata():
            is_moment = (kind.extra_json_schema or {}).get("format") == "date-time"
            return _MOMENT if is_moment else _of(kind.type)
        case inspect.StructType():
            return {field.encode_name: _of(field.type) for field in kind.fields}
        case inspect.UnionType():
            known = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
            return _of(known[0]) if known else None
        case inspect.ListType() | inspect.CollectionType() | inspect.VarTupleType():
            return [_of(kind.item_type)]
        case inspect.DictType():
            return {_TEXT: _of(kind.value_type)}
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.LiteralType():
            return kind.values[0]
    return _plain(kind)


def _plain(kind: inspect.Type) -> Any:
    plain: dict[type[inspect.Type], Any] = {
        inspect.IntType: 1,
        inspect.FloatType: 1.5,
        inspect.BoolType: True,
        inspect.AnyType: {_TEXT: [1, None]},
        inspect.NoneType: None,
    }
    return plain.get(type(kind), _TEXT)
