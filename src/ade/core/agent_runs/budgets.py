"""What a run may spend. Checked whenever it tells what it has spent, so that it is stopped on the way."""

from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Struct

from ade.core.agent_runs.events import Spent
from ade.core.agent_runs.profiles import ProtocolName


class Measure(StrEnum):
    TOKENS = auto()
    COST_USD = auto()
    TURNS = auto()

    @property
    def words(self) -> str:
        return "dollars" if self is Measure.COST_USD else self.value


# What each program tells of itself, sooner or later. Of a plain command nothing is known.
TELLS: Mapping[ProtocolName, frozenset[Measure]] = {
    ProtocolName.LETTA: frozenset({Measure.TOKENS, Measure.TURNS}),
    ProtocolName.CLAUDE: frozenset(Measure),
    ProtocolName.CODEX: frozenset({Measure.TOKENS, Measure.TURNS}),
    ProtocolName.GEMINI: frozenset({Measure.TOKENS, Measure.TURNS}),
    ProtocolName.JSON: frozenset(Measure),
}


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that may be spent; None is no limit."""

    tokens: int | None = None
    cost_usd: float | None = None
    turns: int | None = None


class Excess(Struct, frozen=True, kw_only=True):
    """One limit that was passed, and by whose budget."""

    whose: str
    measure: Measure
    limit: float
    used: float

    @property
    def message(self) -> str:
        if self.measure is Measure.COST_USD:
            return f"the budget of the {self.whose} is ${self.limit:,.2f}, and the run has spent ${self.used:,.2f}"
        unit = self.measure.value
        return f"the budget of the {self.whose} is {self.limit:,.0f} {unit}, and the run has used {self.used:,.0f}"


def excess_of(budgets: Mapping[str, Budget], spent: Spent) -> Excess | None:
    """The first limit that is passed. To spend all of a budget is allowed; what is not known passes no limit.

    `budgets` are what each has left for this run, by whose they are: {"task": ..., "author": ...}.
    """
    for whose, budget in budgets.items():
        for measure in Measure:
            limit, used = getattr(budget, measure.value), getattr(spent, measure.value)
            if limit is not None and used is not None and used > limit:
                return Excess(whose=whose, measure=measure, limit=limit, used=used)
    return None


def left_of(budget: Budget, *before: Spent) -> Budget:
    """What earlier runs have left of a budget: attempts of the same task, or the other runs of an author."""
    tokens = sum(spent.tokens or 0 for spent in before)
    cost = sum(spent.cost_usd or 0 for spent in before)
    turns = sum(spent.turns or 0 for spent in before)
    return Budget(
        tokens=None if budget.tokens is None else max(budget.tokens - tokens, 0),
        cost_usd=None if budget.cost_usd is None else max(budget.cost_usd - cost, 0.0),
        turns=None if budget.turns is None else max(budget.turns - turns, 0),
    )


def tightest(*budgets: Budget) -> Budget:
    """The least of each measure: what to tell a program that can limit itself."""
    return Budget(
        tokens=min((each.tokens for each in budgets if each.tokens is not None), default=None),
        cost_usd=min((each.cost_usd for each in budgets if each.cost_usd is not None), default=None),
        turns=min((each.turns for each in budgets if each.turns is not None), default=None),
    )


def together(first: Spent, second: Spent) -> Spent:
    """What two runs have cost in all. What neither tells is not known."""
    sums = {}
    for name in Spent.__struct_fields__:
        known = [value for each in (first, second) if (value := getattr(each, name)) is not None]
        sums[name] = sum(known) if known else None
    return Spent(**sums)


def used_up(budgets: Mapping[str, Budget]) -> str | None:
    """Why nothing may be begun: some budget has nothing left. None if all have."""
    for whose, budget in budgets.items():
        for measure in Measure:
            if getattr(budget, measure.value) == 0:
                return f"the budget of the {whose} is used up: there are no {measure.words} left for another run"
    return None
