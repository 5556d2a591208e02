"""Tasks by name: what workers have made known about them, for callers without the function."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from msgspec import Raw

from ade.errors import InvalidArguments, UnknownName
from ade.stores.ports import Stores
from ade.stores.repository import SingleFlight
from ade.tasks.admission import is_own_step
from ade.tasks.arguments import CODING_ERRORS, check_against_schema, to_json, to_plain
from ade.tasks.model import Definition

_MOST_TOLD = 50  # names in an error


async def arguments_by_name(
    stores: Stores, name: str, arguments: Mapping[str, Any], *, allow_unknown: bool = False
) -> tuple[Definition, Raw]:
    """The definition some worker has registered and the arguments as JSON, checked as far as it allows.

    Raises UnknownName when nobody has; with `allow_unknown` the arguments are taken as they are.
    """
    return checked_arguments(await registered_names(stores), name, arguments, allow_unknown=allow_unknown)


async def registered_names(stores: Stores) -> dict[str, Definition]:
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


# Definitions remembered for a moment, so that no request reads all of them.


_FRESH_S = 1.0
_APART_S = 0.1  # two reads, at least: names that do not exist must not make the store busy


class DefinitionCache:
    """What workers have registered, by name. A name that is missing is looked for again, so that a new one is found
    at once, or after the tenth of a second that is between two reads; all who wait share the next one."""

    def __init__(
        self,
        stores: Stores,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._sleep = sleep or asyncio.sleep
        self._known: Mapping[str, Definition] = {}
        self._read_at = float("-inf")
        self._turn = SingleFlight()

    async def including(self, names: Collection[str]) -> Mapping[str, Definition]:
        """Definitions at most a second old, with those of these names if there are any."""
        asked_at = self._clock()
        if not self._suffices(names, asked_at):
            async with self._turn:
                if not self._suffices(names, asked_at):
                    await self._read()
        return self._known

    def _suffices(self, names: Collection[str], asked_at: float) -> bool:
        if self._read_at > asked_at:  # while this one waited
            return True
        return asked_at < self._read_at + _FRESH_S and all(name in self._known for name in names)

    async def _read(self) -> None:
        left_s = self._read_at + _APART_S - self._clock()
        if left_s > 0:
            await self._sleep(left_s)
        at = self._clock()
        self._known = await registered_names(self._stores)
        self._read_at = at
