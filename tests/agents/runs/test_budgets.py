"""Budgets: what is passed, by whose budget, and what earlier runs have left of it."""

import pytest

from ade.agents.protocols.base import UsageReported
from ade.agents.runs.model import Budget, BudgetExcess, BudgetMeasure, excess_of, left_of, tightest
from tests.agents.runs.streams import lines_of, read


@pytest.mark.parametrize(
    ("budget", "spent", "measure"),
    [
        (Budget(tokens=100), UsageReported(tokens=100), None),
        (Budget(tokens=100), UsageReported(tokens=101), BudgetMeasure.TOKENS),
        (Budget(cost_usd=0.5), UsageReported(tokens=10**9, cost_usd=0.51), BudgetMeasure.COST_USD),
        (Budget(turns=0), UsageReported(turns=1), BudgetMeasure.TURNS),
        (Budget(turns=5), UsageReported(tokens=1), None),
        (Budget(), UsageReported(tokens=10**12, cost_usd=1e9, turns=10**6), None),
    ],
)
def test_all_of_a_budget_may_be_spent_and_no_more(
    budget: Budget, spent: UsageReported, measure: BudgetMeasure | None
) -> None:
    found = excess_of({"task": budget}, spent)

    assert (found and found.measure) == measure


def test_an_excess_says_whose_budget_it_was() -> None:
    found = excess_of(
        {"task": Budget(tokens=500), "author": Budget(cost_usd=1.0)}, UsageReported(tokens=400, cost_usd=1.25)
    )

    assert found == BudgetExcess(whose="author", measure=BudgetMeasure.COST_USD, limit=1.0, used=1.25)
    assert found.message == "the budget of the author is $1.00, and the run has spent $1.25"
    tokens = excess_of({"task": Budget(tokens=1_000)}, UsageReported(tokens=1_500))
    assert tokens is not None
    assert tokens.message == "the budget of the task is 1,000 tokens, and the run has used 1,500"


def test_earlier_attempts_have_used_up_their_part() -> None:
    budget = Budget(tokens=100, cost_usd=1.0)

    assert left_of(budget, UsageReported(tokens=30, turns=9), UsageReported(cost_usd=0.25)) == Budget(
        tokens=70, cost_usd=0.75
    )
    assert left_of(budget, UsageReported(tokens=300)).tokens == 0


def test_the_tightest_budget_is_the_least_of_each() -> None:
    assert tightest(Budget(tokens=9, turns=1), Budget(tokens=5), Budget()) == Budget(tokens=5, turns=1)


def test_a_run_is_caught_on_its_way_and_not_at_its_end() -> None:
    usage = {"input_tokens": 100, "output_tokens": 50}
    steps = [{"type": "assistant", "message": {"id": f"m{number}", "usage": usage}} for number in range(4)]
    events, _ = read("claude", lines_of(*steps))

    found = [excess_of({"task": Budget(turns=2)}, event) for event in events if isinstance(event, UsageReported)]
    assert [excess is not None for excess in found] == [False, False, True, True]
