"""Two functions for each type of record, that make its wire form and the record again: lists are long, forms have many
fields, and what is the same for all of a type is decided once, as `dataclasses` does it."""

import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol, Union, get_args, get_origin

from msgspec import UNSET, Struct, UnsetType


class WireField(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def out(self) -> Callable[[Any], Any] | None: ...
    @property
    def back(self) -> Callable[[Any], Any] | None: ...
    @property
    def kind(self) -> Any: ...
    @property
    def is_moment(self) -> bool: ...
    @property
    def is_required(self) -> bool: ...
    @property
    def needs_none(self) -> bool: ...


def compiled_out(wire: type[Struct], fields: Sequence[WireField]) -> Callable[[Any], Any]:
    """`record -> wire form`, which has the same fields in the same order. Their names are those of Structs, so nothing
    foreign gets into the source."""
    known: dict[str, Any] = {"Wire": wire, "UNSET": UNSET}
    arguments = []
    for number, field in enumerate(fields):
        known[f"out_{number}"] = field.out
        known[f"absent_{number}"] = _absent(wire, field.name)
        arguments.append(_expression(number, field))
    source = f"def out(record):\n    return Wire({', '.join(arguments)})\n"
    exec(source, known)  # see above: made of our own names alone
    made: Callable[[Any], Any] = known["out"]
    return made


def compiled_back(record: type[Struct], fields: Sequence[WireField]) -> Callable[[Any], Any]:
    """`wire form -> record`. What is absent or None is left to the record's defaults, where it has any."""
    known: dict[str, Any] = {"Record": record, "UNSET": UNSET}
    lines = ["def back(wire):", "    given = {}"]
    for number, field in enumerate(fields):
        known[f"back_{number}"] = field.back
        value = "value" if field.back is None else f"back_{number}(value)"
        lines += [
            f"    if (value := wire.{field.name}) is not None and value is not UNSET:",
            f"        given[{field.name!r}] = {value}",
        ]
        if field.needs_none or field.is_required:  # of those, only what may be anything can be None
            lines += ["    else:", f"        given[{field.name!r}] = None"]
    source = "\n".join([*lines, "    return Record(**given)"])
    exec(source, known)  # as above
    made: Callable[[Any], Any] = known["back"]
    return made


def _absent(wire: type[Struct], name: str) -> Any:
    """What a field is that is left out: its default."""
    index = wire.__struct_fields__.index(name) - len(wire.__struct_fields__)
    defaults = wire.__struct_defaults__
    return defaults[index] if -index <= len(defaults) else None


def _expression(number: int, field: WireField) -> str:
    sent = f"out_{number}(value)" if field.out is not None else "value"
    empty = ["value is None"] if field.is_required and field.out is not None else _emptiness(field)
    if not empty:
        return sent.replace("value", f"record.{field.name}")
    first, *others = (f"absent_{number} if {each} else " for each in empty)
    first = first.replace("value", f"(value := record.{field.name})")
    return f"{first}{''.join(others)}{sent}"


def _emptiness(field: WireField) -> list[str]:
    """The conditions under which a field is left out, as far as its type allows for them."""
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
