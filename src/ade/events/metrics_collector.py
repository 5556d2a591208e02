"""The maintenance job that counts events into stored metrics.

It reads the event log from its own position. Each round is one guarded write that includes this position, so a crash at
any point neither skips nor double-counts an event. If there are no new events, nothing is written.
"""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from ade.errors import StaleWrite
from ade.events.rollups import MINUTE_MS, CounterDelta, EventCounter, Rollup, RollupEntry, hour_of
from ade.settings.sections import FigureSettings
from ade.stores.ports import Stores
from ade.stores.resource_ports import Document, DocumentWrite

# Storage: one document with the totals, and one document per minute and per hour.


KIND, ID = "figures", "all"
MINUTES, HOURS = "figures_minute", "figures_hour"  # by first millisecond
_MOST_AT_ONCE = 500  # documents per read


class MetricTotals(Struct, frozen=True, kw_only=True):
    """How far the event log was counted, and the totals so far. Every write of metrics includes this document and is
    guarded by its version, so each event is counted once.
    """

    seq: int = 0
    rolled: int = 0  # hours before this moment are rolled up
    newest: int = 0  # the newest minute with counts
    entries: list[RollupEntry] = []
    deadlocks: int = 0
    webhook_failures: int = 0


class StoredRollups(Struct, frozen=True):
    """The totals and their document version."""

    totals: MetricTotals
    version: int  # 0: not stored yet


_totals_in = msgspec.json.Decoder(MetricTotals).decode
_entries_in = msgspec.json.Decoder(list[RollupEntry]).decode
_out = msgspec.json.Encoder().encode


async def load_totals(stores: Stores) -> StoredRollups:
    """Load the totals and their version."""
    [found] = await stores.documents.fetch(KIND, [ID])
    return StoredRollups(MetricTotals(), 0) if found is None else StoredRollups(_totals_in(found.body), found.version)


async def load(stores: Stores, kind: str, moments: Sequence[int], most: int) -> dict[int, Rollup]:
    """Load the minutes or hours that exist."""
    found: list[Document | None] = []
    for first in range(0, len(moments), _MOST_AT_ONCE):
        found += await stores.documents.fetch(kind, [str(moment) for moment in moments[first : first + _MOST_AT_ONCE]])
    pairs = zip(moments, found, strict=True)
    return {moment: Rollup(most, _entries_in(one.body)) for moment, one in pairs if one is not None}


def put_totals(totals: MetricTotals, seen: int) -> DocumentWrite:
    """Return the guarded write of the totals."""
    return DocumentWrite(kind=KIND, id=ID, body=Raw(_out(totals)), seen=seen, is_quiet=True)


def put(kind: str, rollups: Iterable[tuple[int, Rollup]], retention_ms: int) -> list[DocumentWrite]:
    """Return unguarded writes: the guard of the totals in the same transaction covers them."""
    return [
        DocumentWrite(
            kind=kind,
            id=str(moment),
            body=Raw(_out(rollup.entries())),
            seen=None,
            expires_at=moment + retention_ms,
            is_quiet=True,
        )
        for moment, rollup in rollups
    ]


READER = "figures"  # cursor name; uncounted events are not trimmed
PAGE = 500  # events per batch: blocks the event loop for a few milliseconds at most
PAGES = 10  # pages per round
FAR_BEHIND = 20  # full rounds in a row, after which rounds follow without a pause
MOST_GROUPS_EVER = 100
_LATE_MS = 2 * MINUTE_MS  # delay before an hour is rolled up, for late events
_CURSOR_MS = 30_000


class MetricsCollector:
    """Caches what it wrote in the last round. The guard of the next write detects a stale cache."""

    def __init__(self, stores: Stores, settings: FigureSettings, *, page: int = PAGE, pages: int = PAGES) -> None:
        self._stores = stores
        self._settings = settings
        self._page = page
        self._pages = pages
        self._counting = EventCounter()
        self._stored: StoredRollups | None = None
        self._minutes: dict[int, Rollup] = {}  # the newest minutes, as written
        self._times_full = 0
        self._advanced = (0, 0)  # seq and time of the last cursor update
        self._uncommitted = 0  # events since that update

    async def keep(self) -> int:
        """Count the next events. Returns their number, or 0 if the job can pause."""
        try:
            return await self._round()
        except StaleWrite:  # another process also counts; continue from its position
            self._forget()
            return 0
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        self._stored, self._minutes = None, {}
        self._counting.forget()

    async def _round(self) -> int:
        """Count up to the maximum number of pages, and write once."""
        stored = self._stored or await self._find_place()
        counted = CounterDelta({})
        done, seq = await self._read(stored.totals.seq, counted)
        if not done and not self._is_hour_over(stored.totals):
            self._stored = stored
        else:
            await self._write(stored, seq, counted)
            self._uncommitted += done
        await self._advance_cursor(seq)
        is_full = done >= self._page * self._pages
        self._times_full = self._times_full + 1 if is_full else 0
        return done if self._times_full >= FAR_BEHIND else 0

    async def _read(self, seq: int, counted: CounterDelta) -> tuple[int, int]:
        """Count the events after a seq. Returns their number and the seq of the last one."""
        done = 0
        for _ in range(self._pages):
            events = await self._stores.events.read(seq, self._page)
            unknown = self._counting.unknown(events)
            self._counting.learn(unknown, await self._stores.tasks.get(unknown) if unknown else [])
            self._counting.count(events, counted)
            done += len(events)
            if events:
                seq = events[-1].seq
            if len(events) < self._page:
                break
            await asyncio.sleep(0)
        return done, seq

    async def _find_place(self) -> StoredRollups:
        """Return where to resume. If the log was lost together with recent counts, resume from its end."""
        stored = await load_totals(self._stores)
        end = await self._stores.events.last_seq()
        totals = stored.totals if stored.totals.seq <= end else structs.replace(stored.totals, seq=end)
        return StoredRollups(totals, stored.version)

    def _is_hour_over(self, totals: MetricTotals) -> bool:
        """Return whether an hour with counts has ended and must be rolled up."""
        return 0 < totals.rolled <= totals.newest and totals.rolled < hour_of(self._stores.clock.now() - _LATE_MS)

    async def _write(self, stored: StoredRollups, seq: int, counted: CounterDelta) -> None:
        now = self._stores.clock.now()
        minutes, hours = await self._added(counted, stored.totals, now)
        rolled = await self._rolled(stored.totals, minutes, hours, now)
        totals = _total(stored.totals, seq, counted, rolled)
        writes = [
            put_totals(totals, stored.version),
            *put(MINUTES, minutes.items(), self._settings.minutes_kept_ms),
            *put(HOURS, hours.items(), self._settings.hours_kept_ms),
        ]
        await self._stores.documents.write(writes)
        # The store chooses the first version number, so it is read in the next round.
        self._stored = StoredRollups(totals, stored.version + 1) if stored.version else None
        self._minutes = {moment: self._minutes[moment] for moment in sorted(self._minutes)[-2:]}

    async def _added(
        self, counted: CounterDelta, totals: MetricTotals, now: int
    ) -> tuple[dict[int, Rollup], dict[int, Rollup]]:
        """Return the minutes with the new counts, and the already rolled-up hours that late events change."""
        settings = self._settings
        groups = settings.groups
        fresh = {m: new for m, new in counted.minutes.items() if m + settings.minutes_kept_ms > now}
        missing = [moment for moment in fresh if moment not in self._minutes]
        if missing:
            self._minutes |= await load(self._stores, MINUTES, missing, groups)
        for moment, new in fresh.items():
            self._minutes.setdefault(moment, Rollup(groups)).add(new)
        late = {m: new for m, new in counted.minutes.items() if hour_of(m) < totals.rolled or m not in fresh}
        late_hours = sorted({hour for m in late if (hour := hour_of(m)) + settings.hours_kept_ms > now})
        hours = await load(self._stores, HOURS, late_hours, groups) if late_hours else {}
        for moment, new in late.items():
            if hour_of(moment) in late_hours:
                hours.setdefault(hour_of(moment), Rollup(groups)).add(new)
        return {moment: self._minutes[moment] for moment in fresh}, hours

    async def _rolled(
        self, totals: MetricTotals, minutes: dict[int, Rollup], hours: dict[int, Rollup], now: int
    ) -> int:
        """Roll up the hours that have ended from their minutes and late events. Returns the end of the last one."""
        end = hour_of(now - _LATE_MS)
        first = totals.rolled or min((hour_of(moment) for moment in minutes), default=end)
        if end <= first:
            return first
        oldest = max(first, hour_of(now - self._settings.minutes_kept_ms))
        last = max(totals.newest, *minutes, 0)
        moments = list(range(oldest, min(end, last + MINUTE_MS), MINUTE_MS))
        loaded = await load(self._stores, MINUTES, moments, self._settings.groups) | minutes
        started = sorted({hour_of(moment) for moment in moments if moment in loaded} - hours.keys())
        hours |= await load(self._stores, HOURS, started, self._settings.groups)
        for moment in moments:
            if moment in loaded:
                hours.setdefault(hour_of(moment), Rollup(self._settings.groups)).add(loaded[moment])
        return end

    async def _advance_cursor(self, seq: int) -> None:
        """Advance the cursor occasionally: it is an extra write. Its lag stays too small to cause a warning."""
        reached, at = self._advanced
        now = self._stores.clock.now()
        if seq > reached and (self._uncommitted >= PAGE * PAGES or not 0 <= now - at < _CURSOR_MS):
            await self._stores.events.advance(READER, seq)
            self._advanced, self._uncommitted = (seq, now), 0


async def skip_to_end(stores: Stores) -> int:
    """Advance the cursor to the end when metrics are disabled, so that it does not block trimming."""
    if (await stores.events.cursors()).get(READER, 0):
        await stores.events.advance(READER, await stores.events.last_seq())
    return 0


def _total(before: MetricTotals, seq: int, counted: CounterDelta, rolled: int) -> MetricTotals:
    ever = Rollup(MOST_GROUPS_EVER, before.entries)
    for new in counted.minutes.values():
        ever.add(new)
    return MetricTotals(
        seq=seq,
        rolled=rolled,
        newest=max(before.newest, *counted.minutes, 0),
        entries=ever.entries(),
        deadlocks=before.deadlocks + counted.deadlocks,
        webhook_failures=before.webhook_failures + counted.webhook_failures,
    )
