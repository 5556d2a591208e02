"""Rollups: bounded, and nothing falls between the groups."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ade.events.rollups import COUNTS, OTHER, Rollup, RollupEntry

GROUPS = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"))
COUNTED = st.lists(st.tuples(GROUPS, st.sampled_from(COUNTS)), max_size=40)


def counted(most: int, what: list[tuple[tuple[str, str], str]]) -> Rollup:
    made = Rollup(most)
    for group, count in what:
        figures = made.of(group)
        setattr(figures, count, getattr(figures, count) + 1)
    return made


@given(COUNTED, st.integers(1, 10))
def test_there_are_never_more_groups_than_may_be_and_all_is_counted(
    what: list[tuple[tuple[str, str], str]], most: int
) -> None:
    made = counted(most, what)
    assert len(made.groups.keys() - {OTHER}) <= most
    total = made.total()
    assert sum(getattr(total, name) for name in COUNTS) == len(what)


@given(COUNTED, COUNTED, st.integers(1, 10))
def test_added_up_they_are_what_was_counted_in_all(
    one: list[tuple[tuple[str, str], str]], other: list[tuple[tuple[str, str], str]], most: int
) -> None:
    both = counted(most, one)
    both.add(counted(100, other))
    assert both.total() == counted(100, one + other).total()
    assert len(both.groups) <= most + 1


@given(COUNTED)
def test_they_are_kept_and_read_as_they_were(what: list[tuple[tuple[str, str], str]]) -> None:
    made = counted(5, what)
    read = Rollup(5, msgspec.json.decode(msgspec.json.encode(made.entries()), type=list[RollupEntry]))
    assert read.groups == made.groups
    assert list(read.groups) == list(made.groups), "who came first keeps its place"


def test_one_queue_or_one_name() -> None:
    made = counted(9, [(("a", "x"), "failed"), (("a", "y"), "failed"), (("b", "x"), "failed")])
    assert made.total(queue="a").failed == 2
    assert made.total(name="x").failed == 2
    assert made.total(queue="b", name="y").failed == 0
