"""What is wrong with a form, in words for people: which field, what it may be, and what was known instead."""

import re
from enum import Enum
from typing import Any, Literal, get_args, get_origin

import msgspec

from ade.core.web.wire import Plan

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_PLACE = re.compile(r"\$\.?")
_MOST_NAMED = 40
_LONGEST_PLACE = 200  # characters; what somebody sends is not said again at any length


def told(error: msgspec.ValidationError, plan: Plan) -> tuple[str, str]:
    """(where, what): `priority`, `tasks[3].queue` or nothing, and a sentence."""
    reason, _, place = str(error).partition(" - at `")
    where = _PLACE.sub("", place.removesuffix("`"), count=1)[:_LONGEST_PLACE]
    unknown = _UNKNOWN.fullmatch(reason)
    if unknown is not None:
        known = "" if where else f"; known are {_listed(plan.wire.__struct_fields__)}"
        name = unknown[1][:_LONGEST_PLACE]
        return f"{where}.{name}" if where else name, f"there is no field {unknown[1][:60]!r} here{known}"
    if reason.startswith("Invalid enum value"):
        return where, _with_values(reason, where, plan)
    return where, reason.replace(" | null", "")


def _with_values(reason: str, where: str, plan: Plan) -> str:
    name = where.partition("[")[0].partition(".")[0]
    kinds = {field.name: field.type for field in msgspec.structs.fields(plan.wire)}
    values = _values(kinds[name]) if name in kinds else []
    return f"{reason}; it is one of {_listed(values)}" if values else reason


def _values(kind: Any) -> list[str]:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    return [value for each in get_args(kind) for value in _values(each)]


def _listed(names: Any) -> str:
    shown = list(names)[:_MOST_NAMED]
    return ", ".join(shown) + (" and more" if len(names) > len(shown) else "")
