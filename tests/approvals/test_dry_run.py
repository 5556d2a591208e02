"""What the rules would say: the guard, the risk, the policy, and who there is to meet it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ade.approvals.policy_check import PolicyCheckRequest, check
from ade.approvals.repository import apply
from ade.approvals.risk import RiskLevel
from tests.conformance.backends import BACKENDS
from tests.domain import (
    GuardOccasion,
    GuardRulesVerdict,
    Stores,
    User,
    UserChanges,
    add_user,
    change_user,
    read_rulebook,
    set_value,
)

BOOK = read_rulebook(
    {
        "criticality": {"db:*": 100},
        "guard": [{"name": "drop*", "do": "demand", "policy": "pair", "reason": "it is gone then"}],
        "policy": [
            {
                "id": "pair",
                "rules": [{"needed": 1, "roles": ["dba"]}, {"needed": 1, "roles": ["dba", "reviewer"]}],
                "steps": [{"after": "1h", "roles": ["admin"]}],
            }
        ],
    }
)


@pytest.fixture(params=["memory", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    opened = await BACKENDS[request.param].open(tmp_path, None)
    await apply(opened, BOOK, actor="ada")
    for name, role in (("ada", "admin"), ("dora", "dba"), ("rob", "reviewer")):
        await add_user(opened, User(id=name, roles=frozenset({role})))
    yield opened
    await opened.close()


async def test_everything_is_told_at_once(stores: Stores) -> None:
    found = await check(stores, PolicyCheckRequest(name="drop-table", resources=["db:main"]))

    assert {ruling.verdict for ruling in found.rulings.values()} == {GuardRulesVerdict.DEMAND}
    assert (found.chosen.ids, found.risk.criticality, found.is_assessed) == (("pair",), 100, True)
    assert [one.accounts for one in found.candidates.rules] == [("dora",), ("dora", "rob")]
    assert [one.later for one in found.candidates.rules] == [("ada",), ("ada",)]
    assert found.candidates.missing == 0


async def test_one_person_fills_one_place(stores: Stores) -> None:
    await change_user(stores, "rob", UserChanges(is_active=False))

    assert (await check(stores, PolicyCheckRequest(name="drop"))).candidates.missing == 1


async def test_a_whole_kind_of_resources_is_the_widest_there_is(stores: Stores) -> None:
    assert (await check(stores, PolicyCheckRequest(name="f", resources=["db:*"]))).risk.blast_radius == 100


async def test_the_levels_are_those_that_are_set(stores: Stores) -> None:
    question = PolicyCheckRequest(name="f", score=60)
    assert (await check(stores, question)).risk.level is RiskLevel.HIGH

    await set_value(stores, "risk.high", 70, actor="ada")

    assert (await check(stores, question)).risk.level is RiskLevel.MEDIUM


async def test_another_rulebook_can_be_tried(stores: Stores) -> None:
    strict = read_rulebook({"guard": [{"at": ["run"], "do": "deny", "reason": "holidays"}]})
    found = await check(stores, PolicyCheckRequest(name="drop"), strict)

    assert found.rulings[GuardOccasion.RUN].verdict is GuardRulesVerdict.DENY
    assert found.rulings[GuardOccasion.ENQUEUE].verdict is GuardRulesVerdict.ALLOW
