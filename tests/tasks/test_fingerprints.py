"""Failures that are the same mistake have the same fingerprint, whatever numbers and names they carry."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ade.failures import FailureKind, TaskError
from ade.tasks.decisions import fingerprint, pattern


def error(message: str, *, error_type: str = "ValueError") -> TaskError:
    return TaskError(kind=FailureKind.RAISED, type=error_type, message=message)


SAME = [
    ("timed out after 3.5 seconds", "timed out after 30 seconds"),
    ("no user 'ann'", "no user 'bob smith'"),
    ('no user "ann"', 'no user "bob"'),
    ("can't open 'a.txt'", "can't open 'b.txt'"),
    ("ann's file isn't there: 'a'", "ann's file isn't there: 'b'"),
    (
        "task 01890a5d-ac96-774b-bcce-b302099a8057 is gone",
        "task 5F0C3E2A-0000-4000-8000-000000000000 is gone",
    ),
    ("<object at 0x7f3a2c>", "<object at 0x7F3A2D11>"),
    ("commit deadbeefdeadbeef refused", "commit 0123456789abcdef0123 refused"),
    ("disk full\nline 3", "disk full\nline 4 and more"),
    ("  disk full  ", "disk full"),
    ("no file '" + "a" * 290 + "' here", "no file '" + "b" * 800 + "' here"),
]

DIFFERENT = [
    ("disk full", "disk broken"),
    ("no user 'ann'", "no group 'ann'"),
    ("commit failed", "connect failed"),
    ("", "disk full"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_varies_does_not_count(one: str, other: str) -> None:
    assert pattern(one) == pattern(other)
    assert fingerprint("send", error(one)) == fingerprint("send", error(other))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_words_are_another_mistake(one: str, other: str) -> None:
    assert fingerprint("send", error(one)) != fingerprint("send", error(other))


def test_the_task_name_and_the_type_of_error_count() -> None:
    prints = {
        fingerprint("send", error("no luck")),
        fingerprint("fetch", error("no luck")),
        fingerprint("send", error("no luck", error_type="KeyError")),
    }

    assert len(prints) == 3


def test_a_fingerprint_never_changes_between_versions() -> None:
    """People mute and link them, so the recipe is frozen; this is the one test to change with it."""
    assert pattern("user 'ann' has 3 of 0xff") == "user <text> has <n> of <address>"
    assert fingerprint("send", error("no luck")) == "5d13f9ff6a36"


@given(name=st.text(), message=st.text())
@example(name="send", message="no file \udcff: half a surrogate pair, as a broken file name gives")
def test_any_message_has_a_short_fingerprint(name: str, message: str) -> None:
    found = fingerprint(name, error(message))

    assert len(found) == 12
    assert set(found) <= set("0123456789abcdef")


@given(
    numbers=st.lists(st.integers(0, 10**9), min_size=2, max_size=2),
    words=st.from_regex(r"[g-z ]{1,20}", fullmatch=True),
)
def test_messages_that_differ_only_in_a_number_are_one_group(numbers: list[int], words: str) -> None:
    one, other = (f"{words} {number} {words}" for number in numbers)

    assert pattern(one) == pattern(other)


def test_an_endless_message_is_read_only_so_far() -> None:
    assert len(pattern("word " * 1_000_000)) <= 300
