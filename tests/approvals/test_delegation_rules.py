"""Who answers for whom: while it lasts, as far as it was meant, and never in a ring."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ade.accounts.model import InvalidDelegation
from ade.approvals.delegations import check_delegation
from ade.approvals.model import DEEPEST, Chain, Delegation, Subject, chains_to
from ade.approvals.risk import RiskLevel
from tests.fuzz.table import passes

DAY = 86_400_000
SUBJECT = Subject(name="deploy", tags=frozenset({"web"}), resource_types=frozenset({"repo"}), level=RiskLevel.HIGH)


def to(delegator: str, delegate: str, **more: object) -> Delegation:
    known: dict[str, object] = {"starts_at": 0, "ends_at": DAY, "cascades": True}
    return Delegation(id=f"{delegator}-{delegate}", delegator=delegator, delegate=delegate, **(known | more))  # type: ignore[arg-type]  # its fields by name


def chains(voter: str, *delegations: Delegation, now: int = 1) -> list[Chain]:
    return list(chains_to(voter, delegations, SUBJECT, now))


def test_everybody_answers_for_himself() -> None:
    assert chains("ada") == [("ada",)]


def test_a_delegate_answers_while_the_delegation_lasts() -> None:
    away = to("ada", "bob", starts_at=10, ends_at=20)

    assert chains("bob", away, now=9) == [("bob",)]
    assert chains("bob", away, now=10) == [("bob",), ("ada", "bob")]
    assert chains("bob", away, now=20) == [("bob",)]
    assert chains("bob", structs.replace(away, is_revoked=True), now=10) == [("bob",)]


@pytest.mark.parametrize(
    "condition",
    [
        {"names": frozenset({"other"})},
        {"tags": frozenset({"db"})},
        {"resource_types": frozenset({"database"})},
        {"to_level": RiskLevel.MEDIUM},
        {"from_level": RiskLevel.CRITICAL},
        {"task_id": "another"},
    ],
)
def test_a_delegation_is_for_what_it_names(condition: dict[str, object]) -> None:
    assert chains("bob", to("ada", "bob", **condition)) == [("bob",)]


def test_it_goes_further_only_if_whoever_began_it_said_so() -> None:
    own = to("bob", "cyd", cascades=False)

    assert ("ada", "bob", "cyd") in chains("cyd", to("ada", "bob", cascades=True), own)
    assert ("ada", "bob", "cyd") not in chains("cyd", to("ada", "bob", cascades=False), own)


def test_it_goes_no_deeper_than_three() -> None:
    names = ["a", "b", "c", "d", "e"]
    links = [to(one, other) for one, other in pairwise(names)]

    assert max(len(chain) for chain in chains("e", *links)) == DEEPEST + 1


def test_a_ring_that_two_writes_closed_ends_where_it_began() -> None:
    assert chains("ada", to("ada", "bob"), to("bob", "ada")) == [("ada",), ("bob", "ada")]


def test_a_delegation_that_would_close_a_ring_is_refused() -> None:
    with pytest.raises(InvalidDelegation, match="already"):
        check_delegation(to("cyd", "ada"), [to("ada", "bob"), to("bob", "cyd")])


def test_one_at_another_time_closes_no_ring() -> None:
    later = to("bob", "ada", starts_at=DAY, ends_at=2 * DAY)

    assert passes(lambda: check_delegation(later, [to("ada", "bob")]), InvalidDelegation)


@pytest.mark.parametrize(
    "wrong",
    [
        to("ada", "ada"),
        to("ada", "bob", ends_at=0),
        to("ada", "bob", ends_at=91 * DAY),
        to("ada", "bob", from_level=RiskLevel.HIGH, to_level=RiskLevel.LOW),
    ],
)
def test_what_nobody_could_use_is_refused(wrong: Delegation) -> None:
    with pytest.raises(InvalidDelegation):
        check_delegation(wrong, [])


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.booleans()), max_size=8))
def test_nobody_is_in_a_chain_twice_and_every_link_is_a_delegation(links: list[tuple[str, str, bool]]) -> None:
    given_ones = [to(one, other, cascades=cascades) for one, other, cascades in links if one != other]
    pairs = {(one.delegator, one.delegate) for one in given_ones}

    for voter in "abcd":
        for chain in chains(voter, *given_ones):
            assert chain[-1] == voter
            assert len(set(chain)) == len(chain) <= DEEPEST + 1
            assert all(pair in pairs for pair in pairwise(chain))


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), max_size=10))
def test_those_that_were_accepted_one_by_one_have_no_ring(links: list[tuple[str, str]]) -> None:
    accepted: list[Delegation] = []
    for one, other in links:
        try:
            check_delegation(to(one, other), accepted)
        except InvalidDelegation:
            continue
        accepted.append(to(one, other))
    following = {one: {each.delegate for each in accepted if each.delegator == one} for one in "abcd"}
    for start in "abcd":
        seen, frontier = set[str](), {start}
        while frontier:
            frontier = {after for here in frontier for after in following[here]} - seen
            seen |= frontier
        assert start not in seen


@pytest.mark.parametrize(
    ("pattern", "holds"),
    [("deploy", True), ("dep*", True), ("*", True), ("d?ploy", True), ("Deploy", False), ("x*", False)],
)
def test_names_may_be_patterns(pattern: str, holds: bool) -> None:
    away = to("ada", "bob", names=frozenset({pattern, "nothing-else"}))

    assert (("ada", "bob") in chains("bob", away)) == holds


@pytest.mark.parametrize(
    ("one", "other", "contradict"),
    [
        ({}, {}, True),
        ({"names": frozenset({"deploy"})}, {}, True),
        ({"names": frozenset({"deploy"})}, {"names": frozenset({"clean"})}, False),
        ({"names": frozenset({"dep*"})}, {"names": frozenset({"deploy"})}, True),
        ({"names": frozenset({"dep*"})}, {"names": frozenset({"*loy"})}, True),
        ({"names": frozenset({"dep*"})}, {"names": frozenset({"clean*"})}, False),
        ({"tags": frozenset({"web"})}, {"tags": frozenset({"db"})}, False),
        ({"tags": frozenset({"web", "db"})}, {"tags": frozenset({"db"})}, True),
        ({"resource_types": frozenset({"repo"})}, {"resource_types": frozenset({"database"})}, False),
        ({"to_level": RiskLevel.MEDIUM}, {"from_level": RiskLevel.HIGH}, False),
        ({"to_level": RiskLevel.HIGH}, {"from_level": RiskLevel.HIGH}, True),
        ({"task_id": "one"}, {"task_id": "another"}, False),
        ({"task_id": "one"}, {"task_id": "one"}, True),
        ({"task_id": "one"}, {}, True),
        ({}, {"starts_at": DAY, "ends_at": 2 * DAY}, False),
        ({}, {"is_revoked": True}, False),
    ],
)
def test_nobody_hands_the_same_to_two(one: dict[str, object], other: dict[str, object], contradict: bool) -> None:
    new, earlier = to("ada", "bob", **one), to("ada", "cyd", **other)

    if contradict:
        with pytest.raises(InvalidDelegation, match="to cyd already"):
            check_delegation(new, [earlier])
    else:
        check_delegation(new, [earlier])


_PATTERNS = st.frozensets(st.text("ab*?", min_size=1, max_size=4), min_size=1, max_size=2)


@given(_PATTERNS, _PATTERNS, st.text("ab", min_size=1, max_size=4))
def test_of_two_that_were_accepted_only_one_holds_for_a_name(
    some: frozenset[str], others: frozenset[str], name: str
) -> None:
    new, earlier = to("ada", "bob", names=some), to("ada", "cyd", names=others)
    try:
        check_delegation(new, [earlier])
    except InvalidDelegation:
        return
    subject = structs.replace(SUBJECT, name=name)
    assert not (new.holds(subject, 1) and earlier.holds(subject, 1))
