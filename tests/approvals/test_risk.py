"""The score of a task: from facts, the same for everybody, and never lower because there is more of something."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ade.approvals.risk import RiskFacts, RiskLevel, Thresholds, assess, level_of, usual_quorum

facts = st.builds(
    RiskFacts,
    criticalities=st.lists(st.integers(0, 100), max_size=4).map(tuple),
    changes=st.integers(0, 100_000),
    resources=st.integers(0, 1_000),
    everywhere=st.booleans(),
    completed=st.integers(0, 10_000),
    failed=st.integers(0, 10_000),
)


def test_the_parts_weigh_as_the_rule_says() -> None:
    risk = assess(RiskFacts(criticalities=(100,), changes=1_000, resources=16, completed=0, failed=10**9))

    assert (risk.criticality, risk.magnitude, risk.blast_radius) == (100, 100, 100)
    assert risk.score == pytest.approx(100, abs=0.01)
    assert risk.level is RiskLevel.CRITICAL


def test_a_small_change_to_nothing_important_by_a_proven_task_is_low() -> None:
    risk = assess(RiskFacts(criticalities=(10,), changes=1, resources=1, completed=200))

    assert risk.level is RiskLevel.LOW
    assert usual_quorum(risk.score) == 1


def test_a_task_without_a_history_counts_as_one_that_fails_half_of_the_time() -> None:
    assert assess(RiskFacts(criticalities=(), changes=0, resources=0)).failure_rate == 50


@given(facts)
def test_a_score_is_a_weighted_sum_between_0_and_100(given_facts: RiskFacts) -> None:
    risk = assess(given_facts)

    parts = 0.4 * risk.criticality + 0.3 * risk.magnitude + 0.2 * risk.blast_radius + 0.1 * risk.failure_rate
    assert 0 <= risk.score <= 100
    assert risk.score == pytest.approx(parts, abs=0.05)


@given(facts, st.sampled_from(["changes", "resources", "failed"]), st.integers(1, 1_000))
def test_more_of_anything_dangerous_never_makes_it_safer(given_facts: RiskFacts, what: str, more: int) -> None:
    worse = structs.replace(given_facts, **{what: getattr(given_facts, what) + more})

    assert assess(worse).score >= assess(given_facts).score


@pytest.mark.parametrize(
    ("score", "level", "quorum"),
    [
        (0, RiskLevel.LOW, 1),
        (24.99, RiskLevel.LOW, 1),
        (25, RiskLevel.MEDIUM, 1),
        (49.99, RiskLevel.MEDIUM, 1),
        (50, RiskLevel.HIGH, 2),
        (74.99, RiskLevel.HIGH, 2),
        (75, RiskLevel.CRITICAL, 3),
        (100, RiskLevel.CRITICAL, 3),
    ],
)
def test_levels_and_the_usual_quorum_by_score(score: float, level: RiskLevel, quorum: int) -> None:
    assert level_of(score, Thresholds()) is level
    assert usual_quorum(score) == quorum
