"""`make test` and then `make test-all` run everything."""

import itertools
import re

import pytest

from tests.architecture.repository import ROOT
from tests.depth import sampled

MARKS = ("long", "deep", "slow", "faults", "realtime")


def selection(target: str) -> str:
    """The marks that a target of the Makefile asks for, as an expression."""
    found = re.search(rf'^{target}:.*\n.*\$\(PYTEST\) -m "([^"]+)"', (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None, target
    return found[1]


def selects(expression: str, marks: set[str]) -> bool:
    return bool(eval(expression, {}, {mark: mark in marks for mark in MARKS}))  # a line of our Makefile


@pytest.mark.parametrize("marks", [set(some) for count in range(3) for some in itertools.combinations(MARKS, count)])
def test_whatever_its_marks_a_test_is_run_by_one_of_the_targets(marks: set[str]) -> None:
    assert selects(selection("test"), marks) or selects(selection("test-all"), marks)


def test_what_is_neither_long_nor_random_is_run_once() -> None:
    assert selects(selection("test"), {"slow", "faults"})
    assert not selects(selection("test-all"), {"slow", "faults"})
    assert not selects(selection("test"), {"long", "deep"})


def test_the_quick_ones_of_many_parameters_are_spread_and_the_others_long() -> None:
    chosen = sampled(range(8), quick=2)

    assert [value for value in chosen if isinstance(value, int)] == [0, 4]
    assert [value.values for value in chosen if not isinstance(value, int)] == [(n,) for n in (1, 2, 3, 5, 6, 7)]
    assert {mark.name for value in chosen if not isinstance(value, int) for mark in value.marks} == {"long"}
