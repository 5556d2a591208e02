"""Patterns: the same as an ordinary regular expression says, only never slow; and lengths of time in words."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.common.patterns import TextPattern, folded, parts_of, path_pattern, readings
from ade.common.text import read_duration, written_duration

small = st.text("ab*?/", max_size=8)
plain = st.text("ab", max_size=10)


def as_regex(pattern: str, star: str = ".*") -> str:
    return "".join({"*": star, "?": "."}.get(char, re.escape(char)) for char in pattern)


@given(small, plain)
def test_a_pattern_matches_what_its_regular_expression_does(pattern: str, text: str) -> None:
    expected = re.fullmatch(as_regex(pattern), text, re.DOTALL) is not None

    assert TextPattern(pattern).matches(text) is expected


@given(st.text("ab*?", max_size=8), st.text("ab", min_size=1, max_size=10))
def test_a_part_of_a_path_does_too(pattern: str, part: str) -> None:
    if pattern in ("", "**"):
        return
    expected = re.fullmatch(as_regex(pattern), part, re.DOTALL) is not None

    assert path_pattern(f"/{pattern}").matches((part,), is_absolute=True) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/a/**", "/a", True),
        ("/a/**", "/a/b/c", True),
        ("/a/**/z", "/a/z", True),
        ("/a/**/z", "/a/b/c/z", True),
        ("/a/**/z", "/a/b/zz", False),
        ("/a/*", "/a/b/c", False),
        ("a/b", "/x/a/b", True),
        ("a/b", "x/a/b/c", False),
        ("~/.ssh/**", "~/.ssh/id", True),
        ("~/.ssh/**", "/x/~/.ssh/id", False),
        ("/**", "/anything/at/all", True),
        ("/**", "relative", False),
        ("**", "relative", True),
    ],
)
def test_stars_of_paths(pattern: str, path: str, fits: bool) -> None:
    parts, is_absolute = parts_of(path)

    assert path_pattern(pattern).matches(parts, is_absolute=is_absolute) is fits


@given(st.text())
def test_what_is_folded_stays_as_it_is(text: str) -> None:
    once = folded(text)

    assert folded(once) == once
    assert folded(f" \t{text}\n ") == once
    assert once in readings(text)


_WRITTEN = st.lists(st.sampled_from(["${IFS", "$IFS", "$", "}", "/*", "*/", "/", "*", " ", "a", "'"]), max_size=12)


@given(_WRITTEN.map("".join))
def test_a_text_is_read_as_shells_and_databases_read_it(text: str) -> None:
    shell = re.sub(r"\$\{IFS[^}]*\}|\$IFS\b", " ", text.replace("'", ""), flags=re.IGNORECASE)
    expected = {folded(text), folded(shell), folded(re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL))}

    assert set(readings(text)) == expected


@pytest.mark.parametrize("opening", ["/* ", "${IFS", "*/ /* ", "} ${IFS"])
def test_no_text_that_closes_nothing_is_a_trap(opening: str) -> None:
    begun = time.process_time()
    readings(opening * 40_000)

    assert time.process_time() - begun < 3  # where each beginning is followed to the end it takes minutes


@given(st.text("ab./", max_size=20))
def test_a_path_in_its_parts_has_no_detours(path: str) -> None:
    parts, is_absolute = parts_of(path)
    climbs = [part for part in parts if part == ".."]

    assert not {"", "."} & set(parts)
    assert list(parts[: len(climbs)]) == climbs
    assert not (is_absolute and climbs)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("15m", 900_000), ("4h", 14_400_000), ("7d", 604_800_000), ("1h 30m", 5_400_000), ("5ms", 5)],
)
def test_a_length_of_time_is_read(text: str, ms: int) -> None:
    assert read_duration(text) == ms


@pytest.mark.parametrize("text", ["", "90", "1x", "h", "-1s", "1.5h", "1h30", "٣s"])
def test_what_is_no_length_of_time_is_none(text: str) -> None:
    assert read_duration(text) is None


@given(st.integers(0, 10**12))
def test_a_length_of_time_is_written_as_it_is_read(ms: int) -> None:
    assert read_duration(written_duration(ms)) == ms
