"""One person fills one slot; as many slots as can be are filled."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from ade.approvals.gates import fill, slots_of, unmet_rules

needs = st.lists(st.integers(1, 2), min_size=1, max_size=3)
people = st.dictionaries(st.sampled_from("abcde"), st.frozensets(st.integers(0, 2)), max_size=5)


def most_by_force(needed: list[int], able: dict[str, frozenset[int]]) -> int:
    slots = slots_of(needed)
    return max(
        sum(rule in able[person] for person, (rule, _) in zip(order, slots, strict=False))
        for order in permutations([*able, *(["nobody"] * len(slots))], len(slots))
        if (able := {**able, "nobody": frozenset()})
    )


def test_who_could_meet_two_rules_meets_one() -> None:
    able = {"ada": frozenset({0, 1})}

    assert len(fill([1, 1], able)) == 1


def test_somebody_makes_room_for_one_who_has_no_other_slot() -> None:
    able = {"ada": frozenset({0, 1}), "bob": frozenset({0})}

    assert fill([1, 1], able) == {(1, 0): "ada", (0, 0): "bob"}


@given(needs, people)
def test_as_many_are_filled_as_can_be(needed: list[int], able: dict[str, frozenset[int]]) -> None:
    filled = fill(needed, able)

    assert len(filled) == most_by_force(needed, able)
    assert len(set(filled.values())) == len(filled), "nobody has two"
    assert all(rule in able[person] for (rule, _), person in filled.items())


@given(needs, people, st.sampled_from("xyz"), st.frozensets(st.integers(0, 2)))
def test_another_one_never_makes_it_fewer(
    needed: list[int], able: dict[str, frozenset[int]], newcomer: str, rules: frozenset[int]
) -> None:
    assert len(fill(needed, {**able, newcomer: rules})) >= len(fill(needed, able))


@given(needs, people)
def test_unmet_are_the_rules_where_one_more_person_would_help(
    needed: list[int], able: dict[str, frozenset[int]]
) -> None:
    filled = len(fill(needed, able))
    helped = {
        rule for rule in range(len(needed)) if len(fill(needed, {**able, "newcomer": frozenset({rule})})) > filled
    }
    assert unmet_rules(needed, able) == helped
