"""Where figures are kept: what is true since ever in one document, and one for each minute and each hour."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from ade.core.documents import Document, DocumentWrite
from ade.core.figures.rollups import Entry, Rollup
from ade.ports import Stores

KIND, ID = "figures", "all"
MINUTES, HOURS = "figures_minute", "figures_hour"  # by their first millisecond
_MOST_AT_ONCE = 500  # documents in one read


class Totals(Struct, frozen=True, kw_only=True):
    """How far the event log was counted, and what that came to since ever. Whoever writes figures writes this too, and
    only if nobody else has: so each event is counted once."""

    seq: int = 0
    rolled: int = 0  # hours that began before this moment are made from their minutes
    newest: int = 0  # the newest minute that something was counted in
    entries: list[Entry] = []
    deadlocks: int = 0
    webhook_failures: int = 0


class Kept(Struct, frozen=True):
    totals: Totals
    version: int  # 0: nothing was kept yet


_totals_in = msgspec.json.Decoder(Totals).decode
_entries_in = msgspec.json.Decoder(list[Entry]).decode
_out = msgspec.json.Encoder().encode


async def load_totals(stores: Stores) -> Kept:
    [found] = await stores.documents.fetch(KIND, [ID])
    return Kept(Totals(), 0) if found is None else Kept(_totals_in(found.body), found.version)


async def load(stores: Stores, kind: str, moments: Sequence[int], most: int) -> dict[int, Rollup]:
    """The minutes, or hours, that there are."""
    found: list[Document | None] = []
    for first in range(0, len(moments), _MOST_AT_ONCE):
        found += await stores.documents.fetch(kind, [str(moment) for moment in moments[first : first + _MOST_AT_ONCE]])
    pairs = zip(moments, found, strict=True)
    return {moment: Rollup(most, _entries_in(one.body)) for moment, one in pairs if one is not None}


def put_totals(totals: Totals, seen: int) -> DocumentWrite:
    return DocumentWrite(kind=KIND, id=ID, body=Raw(_out(totals)), seen=seen, is_quiet=True)


def put(kind: str, rollups: Iterable[tuple[int, Rollup]], kept_ms: int) -> list[DocumentWrite]:
    """Over whatever is there: the guard of the totals holds for these too."""
    return [
        DocumentWrite(
            kind=kind,
            id=str(moment),
            body=Raw(_out(rollup.entries())),
            seen=None,
            expires_at=moment + kept_ms,
            is_quiet=True,
        )
        for moment, rollup in rollups
    ]
