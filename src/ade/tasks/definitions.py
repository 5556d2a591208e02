"""Task definitions that workers have registered: lookup and argument checks for callers without the function."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from msgspec import Raw

from ade.errors import InvalidArguments, UnknownName
from ade.stores.ports import Stores
from ade.stores.wakeups import Refresh, SingleFlight
from ade.tasks.admission import is_own_step
from ade.tasks.arguments import CODING_ERRORS, check_against_schema, to_json, to_plain
from ade.tasks.model import Definition

_MOST_LISTED = 50  # names listed in an error message


async def arguments_by_name(
    stores: Stores, name: str, arguments: Mapping[str, Any], *, allow_unknown: bool = False
) -> tuple[Definition, Raw]:
    """Return the registered definition and the arguments as JSON, checked against its schema.

    Raises UnknownName if no worker has registered the name; with `allow_unknown`, its arguments are not checked.
    """
    return checked_arguments(await registered_names(stores), name, arguments, allow_unknown=allow_unknown)


async def registered_names(stores: Stores) -> dict[str, Definition]:
    """Return all registered definitions by name."""
    return {definition.name: definition for definition in await stores.workers.definitions()}


def checked_arguments(
    known: Mapping[str, Definition], name: str, arguments: Mapping[str, Any], *, allow_unknown: bool = False
) -> tuple[Definition, Raw]:
    """Like `arguments_by_name`, with definitions that were read before."""
    definition = known.get(name)
    if definition is None:
        if not allow_unknown:
            raise UnknownName(f"no worker has registered a task named {name[:200]!r}; registered are: {_listed(known)}")
        definition = Definition(name=name)
    try:
        plain = to_plain(arguments)
        raw = to_json(plain)
    except CODING_ERRORS as error:
        raise InvalidArguments(f"the arguments of {name} cannot be sent: {error}") from None
    if definition.schema is not None:
        check_against_schema(name, definition.schema, plain)
    return definition, raw


def _listed(known: Mapping[str, Definition]) -> str:
    names = sorted(name for name in known if not is_own_step(name))  # only ADE enqueues those
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return (", ".join(names[:_MOST_LISTED]) or "none") + more


# A short-lived cache, so that not every request reads all definitions.


_FRESH_S = 1.0
_APART_S = 0.1  # between two reads: requests for unknown names must not overload the store


class DefinitionCache:
    """A cache of the registered definitions, at most one second old.

    A missing name causes another read, so a new definition is found immediately or after the 0.1 s minimum between
    two reads. Concurrent callers share one read. While the part of the store that has the definitions does not respond,
    older ones are used, up to `Wakeups.tolerance_s`.
    """

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
        self._asked_at = float("-inf")  # by the last caller that needs newer definitions than there are
        self._asked: Collection[str] = ()
        self._refresh = Refresh(self._read_newer)

    async def including(self, names: Collection[str]) -> Mapping[str, Definition]:
        """Return definitions at most a second old, including those of these names if they exist."""
        asked_at = self._clock()
        if self._suffices(names, asked_at):
            return self._known
        self._asked_at, self._asked = asked_at, names
        is_recent = asked_at - self._read_at < self._stores.wakeups.tolerance_s
        if is_recent and all(name in self._known for name in names):
            await self._refresh.soon()
        else:
            await self._read_newer()
        return self._known

    async def _read_newer(self) -> Mapping[str, Definition]:
        asked_at, names = self._asked_at, self._asked
        async with self._turn:
            if not self._suffices(names, asked_at):
                await self._read()
        return self._known

    def _suffices(self, names: Collection[str], asked_at: float) -> bool:
        if self._read_at > asked_at:  # another caller has read it in the meantime
            return True
        return asked_at < self._read_at + _FRESH_S and all(name in self._known for name in names)

    async def _read(self) -> None:
        left_s = self._read_at + _APART_S - self._clock()
        if left_s > 0:
            await self._sleep(left_s)
        at = self._clock()
        self._known = await registered_names(self._stores)
        self._read_at = at
