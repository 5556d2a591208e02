"""Which names an account has defined over HTTP. Definitions stay for good, so that there is a limit to them.

And who is about to define a name: between the moment when it is checked that nobody else runs it and that in which it
is registered, it is reserved.
"""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct, structs

from ade.core.approvals.refusals import NotPermitted
from ade.core.errors import InvalidTask
from ade.core.records import Definition
from ade.governance.kept import Shelf, decided
from ade.ports import Stores

MOST_NAMES = 1_000
MOST_SCHEMA_BYTES = 1_000_000  # of all their schemas together
RESERVED_MS = 30_000  # far longer than to register takes


class DefinedNames(Struct, frozen=True, kw_only=True):
    sizes: dict[str, int] = {}  # name -> bytes of its schema


class ReservedName(Struct, frozen=True, kw_only=True):
    account: str
    digest: str  # of the definition
    until: int


_SHELF = Shelf("web_names", DefinedNames)
_RESERVED = Shelf("web_reserved", ReservedName, lambda reserved: reserved.until)


async def reserve_names(stores: Stores, account: str, definitions: Iterable[Definition]) -> None:
    """Of two accounts that define a name otherwise at once, one is refused. Raises NotPermitted."""
    digests = {each.name: hashlib.sha256(msgspec.json.encode(each)).hexdigest() for each in definitions}

    async def step() -> None:
        now, writes = stores.clock.now(), []
        for (name, digest), kept in zip(digests.items(), await _RESERVED.each(stores, list(digests)), strict=True):
            is_same = kept is not None and kept.record.digest == digest
            if kept is not None and not is_same and kept.record.account != account:
                raise NotPermitted(
                    f"{name} is being defined otherwise by {kept.record.account}; register it with the same definition,"
                    " or under another name"
                )
            if kept is None or not is_same or kept.record.until < now + RESERVED_MS // 2:
                reserved = ReservedName(account=account, digest=digest, until=now + RESERVED_MS)
                put = _RESERVED.put(name, reserved, seen=0 if kept is None else kept.version)
                writes.append(structs.replace(put, is_quiet=True))
        if writes:
            await stores.documents.write(writes)

    await decided(step)


async def note_names(stores: Stores, account: str, sizes: Mapping[str, int]) -> None:
    """These are about to be defined by the account, with schemas of so many bytes. Raises InvalidTask, and notes none,
    if that is more than one account may."""

    async def step() -> None:
        kept = await _SHELF.get(stores, account)
        before = {} if kept is None else kept.record.sizes
        after = {**before, **sizes}
        if after == before:
            return
        _check(account, after)
        put = _SHELF.put(account, DefinedNames(sizes=after), seen=0 if kept is None else kept.version)
        await stores.documents.write([structs.replace(put, is_quiet=True)])

    if sizes:
        await decided(step)


def _check(account: str, sizes: Mapping[str, int]) -> None:
    if len(sizes) > MOST_NAMES:
        raise InvalidTask(
            f"{account} would have defined {len(sizes):,} names, and an account may define {MOST_NAMES:,} over HTTP;"
            " use fewer names and tell them apart by arguments"
        )
    total = sum(sizes.values())
    if total > MOST_SCHEMA_BYTES:
        raise InvalidTask(
            f"the schemas of all names that {account} has defined would have {total:,} bytes, and those of an account"
            f" may have {MOST_SCHEMA_BYTES:,}; make them smaller"
        )
