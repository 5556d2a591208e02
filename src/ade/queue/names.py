"""Tasks by name: what workers have made known about them, for callers without the function."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from ade.core.admission import is_own_step
from ade.core.errors import InvalidArguments, UnknownName
from ade.core.records import Definition
from ade.ports import Stores
from ade.queue.coding import CODING_ERRORS, to_json, to_plain
from ade.queue.schemas import check_against_schema

_MOST_TOLD = 50  # names in an error


async def arguments_by_name(
    stores: Stores, name: str, arguments: Mapping[str, Any], *, allow_unknown: bool = False
) -> tuple[Definition, Raw]:
    """The definition some worker has registered and the arguments as JSON, checked as far as it allows.

    Raises UnknownName when nobody has; with `allow_unknown` the arguments are taken as they are.
    """
    return checked_arguments(await known_names(stores), name, arguments, allow_unknown=allow_unknown)


async def known_names(stores: Stores) -> dict[str, Definition]:
    """What some worker has registered, by name."""
    return {definition.name: definition for definition in await stores.workers.definitions()}


def checked_arguments(
    known: Mapping[str, Definition], name: str, arguments: Mapping[str, Any], *, allow_unknown: bool = False
) -> tuple[Definition, Raw]:
    """The same with what is known."""
    definition = known.get(name)
    if definition is None:
        if not allow_unknown:
            raise UnknownName(f"no worker has registered a task named {name[:200]!r}; registered are: {_told(known)}")
        definition = Definition(name=name)
    try:
        plain = to_plain(arguments)
        raw = to_json(plain)
    except CODING_ERRORS as error:
        raise InvalidArguments(f"the arguments of {name} cannot be sent: {error}") from None
    if definition.schema is not None:
        check_against_schema(name, definition.schema, plain)
    return definition, raw


def _told(known: Mapping[str, Definition]) -> str:
    names = sorted(name for name in known if not is_own_step(name))  # those nobody else may enqueue
    more = f" and {len(names) - _MOST_TOLD:,} more" if len(names) > _MOST_TOLD else ""
    return (", ".join(names[:_MOST_TOLD]) or "none") + more
