"""Random histories of documents: every store holds what a dictionary holds, and no version ever comes again."""

import itertools
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from msgspec import Raw

from ade.common.gcra import RateState, available, next_allowed_ms, possible, take
from ade.errors import StaleWrite
from tests.conformance.backends import BACKENDS
from tests.conformance.histories import StoreHistories, play
from tests.domain import Document, DocumentWrite, Event

Which = tuple[str, str]
PLACES: list[Which] = [("user", "ada"), ("user", "bob"), ("session", "ada"), ("session", "s:2")]
CHANGED, REFUSED = "documents.changed", "documents.refused"
specs = st.lists(
    st.tuples(
        st.sampled_from(PLACES),
        st.booleans(),  # written, or removed
        st.sampled_from(["right", "any", "none", "old"]),  # what the writer has seen
        st.sampled_from([None, -1, 5, 60]),  # seconds until it expires
    ),
    max_size=4,
)
rates = st.sampled_from([(1, 5_000), (3, 10_000), (7, 1_000)])


class DocumentHistories(StoreHistories):
    """Everything is done twice: by the store, and with a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.stores.documents
        self.numbers = itertools.count()
        self.kept: dict[Which, tuple[Raw, int | None]] = {}  # body and end, expired or not
        self.versions: dict[Which, set[int]] = {which: {0} for which in PLACES}  # all that were ever seen
        self.current: dict[Which, int] = {}
        self.told: list[str] = []
        self.rate: dict[str, RateState] = {}

    def is_there(self, which: Which, kept: dict[Which, tuple[Raw, int | None]]) -> bool:
        return which in kept and (kept[which][1] is None or kept[which][1] > self.clock.now())  # type: ignore[operator]

    @rule(specs=specs)
    def write(self, specs: list[Any]) -> None:
        after, touched, writes, is_refused = dict(self.kept), set[Which](), [], False
        for which, is_written, sight, ends_in in specs:
            if which in touched:
                continue  # its version is not known before the call
            touched.add(which)
            current = self.current[which] if self.is_there(which, after) else 0
            seen = {"right": current, "any": None, "none": 0, "old": min(self.versions[which] | {1})}[sight]
            is_refused = is_refused or seen not in (None, current)
            body = Raw(b'{"number":%d}' % next(self.numbers)) if is_written else None
            expires_at = None if ends_in is None else self.clock.now() + ends_in * 1_000
            writes.append(DocumentWrite(kind=which[0], id=which[1], body=body, seen=seen, expires_at=expires_at))
            after.pop(which, None)
            if body is not None:
                after[which] = (body, expires_at)
        self.carry_out(writes, is_refused=is_refused)
        if not is_refused:
            self.kept = after
            self.told.append(CHANGED)
            self.look_at_versions({(each.kind, each.id) for each in writes if each.body is not None})

    def carry_out(self, writes: list[DocumentWrite], *, is_refused: bool) -> None:
        event = Event(type=REFUSED if is_refused else CHANGED, at=self.clock.now())
        if is_refused:
            with pytest.raises(StaleWrite):
                self.do(self.store.write(writes, [event]))
        else:
            self.do(self.store.write(writes, [event]))

    def look_at_versions(self, written: set[Which]) -> None:
        """What was written has a version that nobody can have seen."""
        for which, document in self.there().items():
            if which in written:
                assert document.version not in self.versions[which]
                assert document.version > max(self.versions[which])
                self.versions[which].add(document.version)
                self.current[which] = document.version
            assert document.version == self.current[which]

    def there(self) -> dict[Which, Document]:
        kinds = sorted({kind for kind, _ in PLACES})
        found = [self.do(self.store.list_documents(kind)) for kind in kinds]
        return {(each.kind, each.id): each for documents in found for each in documents}

    @rule(limit=st.integers(1, 10))
    def expire(self, limit: int) -> None:
        self.do(self.store.expire_documents(limit))

    @rule(key=st.sampled_from(["login:ada", "login:bob"]), limit=rates)
    def take_rate(self, key: str, limit: tuple[int, int]) -> None:
        about = {"count": limit[0], "period_ms": limit[1], "now_ms": self.clock.steady()}
        state = possible(self.rate.get(key, RateState(0)), **about)
        wait_ms = next_allowed_ms(state, **about) - self.clock.steady()
        assert self.do(self.store.take_rate(key, *limit)) == wait_ms
        assert (wait_ms == 0) is (available(state, **about) > 0)
        if wait_ms == 0:
            self.rate[key] = take(state, 1, **about)

    @rule(seconds=st.sampled_from([0.001, 1, 6, 61, 200]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def the_store_holds_the_same(self) -> None:
        expected = {which: kept for which, kept in self.kept.items() if self.is_there(which, self.kept)}
        assert {which: (each.body, each.expires_at) for which, each in self.there().items()} == expected
        for kind in ("user", "session"):
            ids = [document_id for _, document_id in PLACES]
            found = self.do(self.store.fetch(kind, ids))
            assert [(kind, each) in expected for each in ids] == [document is not None for document in found]
        events = self.do(self.stores.events.read(0, 1_000))
        assert [event.type for event in events] == self.told


@pytest.mark.deep
@pytest.mark.parametrize("backend_name", BACKENDS)
def test_whatever_happens_documents_are_as_they_were_written(backend_name: str) -> None:
    assert play(DocumentHistories, backend_name, in_depth=30, steps=30) > 0
