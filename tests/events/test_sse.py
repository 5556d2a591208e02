"""The text of an event stream, read back the way a browser reads it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.errors import InvalidFilter
from ade.events.feed_items import EventBatch, FeedEnd, FeedEntry, FeedHeartbeat, Gap, item_text
from ade.events.sse import LARGEST_SEQ, block, comment, event_block, start_after
from tests.depth import examples
from tests.domain import Event
from tests.events.browser import Browser


def test_an_event_has_its_seq_as_id_its_type_as_name_and_json_as_data() -> None:
    event = Event(seq=7, type="task.created", at=1_760_000_000_123, task_id="t", actor="ann", payload={"queue": "q"})
    text = event_block(event).decode()
    assert text.startswith("id: 7\nevent: task.created\ndata: {")
    assert text.endswith("}\n\n")
    browser = Browser()
    browser.feed(text)
    [(name, data)] = browser.shown
    assert name == "task.created"
    assert msgspec.json.decode(data) == {
        "seq": 7,
        "type": "task.created",
        "at": "2025-10-09T08:53:20.123Z",
        "task_id": "t",
        "actor": "ann",
        "payload": {"queue": "q"},
    }
    assert browser.last_event_id == "7"


@settings(max_examples=examples(40))
@given(st.text(), st.text(), st.integers(0, LARGEST_SEQ))
def test_nothing_inside_a_block_can_end_it(data: str, name: str, seq: int) -> None:
    browser = Browser()
    browser.feed((block(data=data, event=name, seq=seq) + block(data="next")).decode())
    lines = data.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()
    assert [shown for _, shown in browser.shown] == ([lines, "next"] if lines else ["next"])
    assert browser.last_event_id == str(seq)


@settings(max_examples=examples(40))
@given(st.text())
def test_a_comment_is_never_shown(text: str) -> None:
    browser = Browser()
    browser.feed((comment(text) + block(data="next")).decode())
    assert browser.shown == [("message", "next")]
    assert browser.last_event_id == ""


def test_a_payload_with_line_breaks_stays_one_event() -> None:
    event = Event(seq=1, type="task.failed", at=0, payload={"error": "a\n\ndata: x\r\nid: 9"})
    browser = Browser()
    browser.feed(event_block(event).decode())
    assert len(browser.shown) == 1
    assert browser.last_event_id == "1"


def test_a_type_with_line_breaks_cannot_forge_a_field() -> None:
    browser = Browser()
    browser.feed(event_block(Event(seq=1, type="x\nid: 9\n\ndata: y", at=0)).decode())
    assert len(browser.shown) == 1
    assert browser.last_event_id == "1"


def test_each_kind_of_item_has_its_text() -> None:
    browser = Browser()
    first, second = (FeedEntry(Event(seq=seq, type="alert", at=0)) for seq in (4, 5))
    browser.feed(item_text(EventBatch([first, second])).decode())
    browser.feed(item_text(Gap(5, 9)).decode())
    assert browser.last_event_id == "5"  # what is left of the gap is still to come
    browser.feed(item_text(FeedHeartbeat(12)).decode())
    assert browser.last_event_id == "12"
    browser.feed(item_text(FeedHeartbeat(None)).decode())
    browser.feed(item_text(FeedEnd("shutdown"), retry_ms=1500).decode())
    assert [name for name, _ in browser.shown] == ["alert", "alert", "gap", "end"]
    assert browser.shown[2][1] == '{"after":5,"until":9}'
    assert browser.shown[3][1] == '{"reason":"shutdown"}'
    assert (browser.last_event_id, browser.retry) == ("12", 1500)


def test_the_text_of_an_event_is_made_once_for_all() -> None:
    made: list[int] = []

    def encode(event: Event) -> bytes:
        made.append(event.seq)
        return b"x"

    entry = FeedEntry(Event(seq=3, type="alert", at=0), encode)
    assert EventBatch([entry]).text + EventBatch([entry]).text == b"xx"
    assert made == [3]


@pytest.mark.parametrize(
    ("header", "query", "place"),
    [
        (None, None, None),
        ("", None, None),
        ("", "5", 5),
        (None, "0", 0),
        ("12", "5", 12),
        (str(LARGEST_SEQ), None, LARGEST_SEQ),
    ],
)
def test_the_header_goes_before_the_query(header: str | None, query: str | None, place: int | None) -> None:
    assert start_after(header, query) == place


@pytest.mark.parametrize(
    "text", ["-1", "+1", " 1", "1 ", "1_0", "\uff11", "1.0", "x", "9" * 19, "1" * 500, "1\n", "\x00"]
)
def test_a_place_that_is_no_seq_is_refused(text: str) -> None:
    with pytest.raises(InvalidFilter, match="Last-Event-ID must be the seq of an event"):
        start_after(text, None)
    with pytest.raises(InvalidFilter, match="after must be the seq of an event"):
        start_after(None, text)
