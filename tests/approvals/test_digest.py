"""One text for one meaning, as RFC 8785 has it: what people approve can be told from anything else."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ade.approvals.digest import MOST_EXACT, canonical, differences, digest_of
from ade.approvals.errors import InvalidSubject

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MOST_EXACT, MOST_EXACT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def read(text: str | bytes) -> object:
    """As readers do for whom all numbers are floating point numbers."""
    return json.loads(text, parse_int=float)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (1e21, "1e+21"),
        (999999999999999900000.0, "999999999999999900000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (333333333.3333333, "333333333.3333333"),
    ],
)
def test_numbers_are_written_as_the_rfc_lists_them(number: float, text: str) -> None:
    assert canonical(number) == text.encode()


def test_names_are_in_the_order_of_their_utf_16_units() -> None:
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]

    written = json.loads(canonical(dict.fromkeys(names)), object_pairs_hook=lambda pairs: [name for name, _ in pairs])

    assert written == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_texts_have_the_fewest_escapes() -> None:
    assert canonical('\u20ac$\u000f\nA\'B"\\\\"/\x7f') == '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/\x7f"'.encode()


@given(values)
def test_what_is_written_means_the_same(value: object) -> None:
    assert read(canonical(value)) == read(json.dumps(value))


@given(values)
def test_what_means_the_same_is_written_in_one_way(value: object) -> None:
    assert canonical(read(canonical(value))) == canonical(value)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values, max_size=5), st.randoms())
def test_the_order_in_which_names_were_given_is_no_part_of_it(value: dict[str, object], randomness: object) -> None:
    names = list(value)
    randomness.shuffle(names)  # type: ignore[attr-defined]  # a random.Random

    assert digest_of({name: value[name] for name in names}) == digest_of(value)


@given(values, values)
def test_two_meanings_never_have_one_text(one: object, other: object) -> None:
    if canonical(one) == canonical(other):
        assert read(json.dumps(one)) == read(json.dumps(other))


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), MOST_EXACT + 1, -MOST_EXACT - 1, "\ud800", {1: "x"}, {"a": object()}, {"a": b"x"}],
)
def test_what_has_no_one_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidSubject):
        canonical(value)


@given(st.text(min_size=900, max_size=1_500), st.text(max_size=30), st.text(max_size=30), st.text(min_size=900))
def test_a_difference_is_visible_however_long_the_values_are(start: str, one: str, other: str, end: str) -> None:
    assume(one != other)

    [change] = differences({"a": f"{start}{one}{end}"}, {"a": f"{start}{other}{end}"})

    assert change.path == "a"
    assert change.before != change.after
    assert len(f"{change.before}{change.after}") < 3_000
