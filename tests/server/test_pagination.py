"""A cursor leads on in its own list, and nowhere else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.server.pagination import read_cursor, write_cursor
from tests.depth import examples
from tests.domain import RequestRefused

FEW = settings(max_examples=examples(50))
positions = st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"), max_size=200)
filters = st.dictionaries(st.sampled_from(["status", "queue", "name"]), st.none() | st.text("abc", max_size=3))


@FEW
@given(positions, filters)
def test_what_is_written_is_read_back(position: int | str, wanted: dict[str, str | None]) -> None:
    text = write_cursor("tasks", wanted, position)

    assert read_cursor("tasks", wanted, text) == position
    assert text.isascii()
    assert "=" not in text


def test_filters_that_say_nothing_and_their_order_do_not_matter() -> None:
    text = write_cursor("tasks", {"queue": "a", "name": "b", "tag": None}, 7)

    assert read_cursor("tasks", {"name": "b", "queue": "a"}, text) == 7


@pytest.mark.parametrize(("of_list", "queue"), [("events", "a"), ("tasks", "b"), ("tasks", None)])
def test_a_cursor_of_another_list_or_filter_is_refused(of_list: str, queue: str | None) -> None:
    with pytest.raises(RequestRefused, match="another list or another filter") as refused:
        read_cursor(of_list, {"queue": queue}, write_cursor("tasks", {"queue": "a"}, 7))

    assert refused.value.problem.status == 400


@pytest.mark.parametrize("text", ["", "x", "AQ", "é" * 20, "A" * 2_001, "AAAAAAAAAAAAAAAAAA==", "!!!!!!!!!!!!!!!!"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(RequestRefused, match="damaged") as refused:
        read_cursor("tasks", {}, text)

    assert refused.value.problem.code == "invalid_cursor"


def test_a_cursor_of_a_later_version_says_so() -> None:
    text = write_cursor("tasks", {}, 7)

    with pytest.raises(RequestRefused, match="another version"):
        read_cursor("tasks", {}, "Ag" + text[2:])


@FEW
@given(st.data())
def test_changing_any_character_is_noticed(data: st.DataObject) -> None:
    text = write_cursor("tasks", {}, 123456789)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("ABCdef019-_").filter(lambda char: char != text[at]))

    with pytest.raises(RequestRefused):
        read_cursor("tasks", {}, text[:at] + other + text[at + 1 :])
