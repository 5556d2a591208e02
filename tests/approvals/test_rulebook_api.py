"""The rulebook over the operations: read, replaced by who has seen it, and asked."""

import asyncio
from typing import Any

import msgspec
import pytest

from ade.approvals import api_rulebook
from ade.approvals.api_rulebook import ApplyRulebook, CheckPolicies, ListRulebookVersions
from ade.approvals.errors import InvalidRulebook, UnknownRulebook
from ade.approvals.policy_check import Findings
from ade.approvals.repository import RulebookVersion
from ade.errors import NotPermitted, StaleWrite
from tests.approvals.people import HELD, ONE, TWO, by, person
from tests.domain import GuardOccasion, GuardRulesVerdict, RequestRefused, from_wire, to_wire
from tests.server.operations import LOCAL, Operations

RULES: dict[str, Any] = {"guard": [HELD], "policy": [ONE]}
OTHER: dict[str, Any] = {"guard": [{**HELD, "policy": "two"}], "policy": [TWO]}


async def test_a_rulebook_is_applied_by_who_has_seen_the_one_before(ops: Operations) -> None:
    await person(ops, "root", "admin")
    nothing = await api_rulebook.get_rulebook(ops.services, LOCAL)
    assert (nothing.version, nothing.rules) == (0, {})
    assert msgspec.json.decode(msgspec.json.encode(to_wire(nothing))).get("at") is None

    async def put(rules: dict[str, Any], if_match: str | None) -> int:
        request = await by(ops, "root", "apply_rulebook", if_match=if_match, tag_required=True)
        return (await api_rulebook.apply_rulebook(ops.services, request, ApplyRulebook(rules=rules))).version

    with pytest.raises(RequestRefused) as unsaid:
        await put(RULES, None)
    assert unsaid.value.problem.status == 428
    assert await put(RULES, '"0"') == 1
    with pytest.raises(RequestRefused) as stale:
        await put(OTHER, '"0"')
    assert stale.value.problem.status == 412
    assert await put(RULES, "*") == 1  # it says the same
    assert await put(OTHER, '"1"') == 2
    now = await api_rulebook.get_rulebook(ops.services, LOCAL)
    assert (now.version, now.by, now.rules["policy"][0]["id"]) == (2, "root", "two")


async def test_of_two_rulebooks_made_from_one_version_one_is_applied(ops: Operations) -> None:
    await person(ops, "root", "admin")
    request = await by(ops, "root", "apply_rulebook", if_match='"0"', tag_required=True)
    both = [api_rulebook.apply_rulebook(ops.services, request, ApplyRulebook(rules=rules)) for rules in (RULES, OTHER)]
    done = await asyncio.gather(*both, return_exceptions=True)
    lost = [type(each).__name__ for each in done if not isinstance(each, RulebookVersion)]
    assert lost in ([StaleWrite.__name__], [RequestRefused.__name__])
    assert (await api_rulebook.get_rulebook(ops.services, LOCAL)).version == 1


async def test_every_version_is_kept(ops: Operations) -> None:
    for rules in (RULES, OTHER):
        await api_rulebook.apply_rulebook(ops.services, LOCAL, ApplyRulebook(rules=rules))
    found = await api_rulebook.list_rulebook_versions(ops.services, LOCAL, ListRulebookVersions(limit=1))
    rest = await api_rulebook.list_rulebook_versions(ops.services, LOCAL, ListRulebookVersions(cursor=found.next))
    assert [edition.version for page in (found, rest) for edition in page.items] == [2, 1]
    first = await api_rulebook.get_rulebook_version(ops.services, LOCAL, "1")
    assert first.rules["policy"][0]["id"] == "one"
    for wrong in ("3", "0", "-1", "a{b}", "1" * 300, "٣"):
        with pytest.raises(UnknownRulebook):
            await api_rulebook.get_rulebook_version(ops.services, LOCAL, wrong)


async def test_on_a_local_store_the_version_may_be_said(ops: Operations) -> None:
    await api_rulebook.apply_rulebook(ops.services, LOCAL, ApplyRulebook(rules=RULES))
    late = type(LOCAL)(actor="cli:x", author="x", if_match='"0"')
    with pytest.raises((RequestRefused, StaleWrite)):
        await api_rulebook.apply_rulebook(ops.services, late, ApplyRulebook(rules=OTHER))


async def test_what_is_wrong_is_named_and_nothing_is_stored(ops: Operations) -> None:
    wrongs: list[dict[str, Any]] = [
        {"guard": [{"do": "maybe"}]},
        {"rules": []},
        {"policy": [{**ONE, "id": "a+b"}]},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidRulebook):
            await api_rulebook.apply_rulebook(ops.services, LOCAL, ApplyRulebook(rules=wrong))
    assert (await api_rulebook.get_rulebook(ops.services, LOCAL)).version == 0


async def test_only_admins_apply(ops: Operations) -> None:
    await person(ops, "bob", "reviewer", "operator")
    with pytest.raises(NotPermitted):
        await by(ops, "bob", "apply_rulebook")


async def test_the_rules_are_asked_what_they_would_say(ops: Operations) -> None:
    await person(ops, "bob", "reviewer")
    await api_rulebook.apply_rulebook(ops.services, LOCAL, ApplyRulebook(rules=RULES))
    bob = await by(ops, "bob", "check_policies")
    found = await api_rulebook.check_policies(ops.services, bob, CheckPolicies(name="greet", args={"name": "Ada"}))
    assert found.rulings[GuardOccasion.ENQUEUE].verdict is GuardRulesVerdict.DEMAND
    assert found.chosen.policy.id == "one"
    assert found.candidates.rules[0].accounts == ("bob",)

    back = from_wire(to_wire(found), Findings)
    assert (back.chosen, back.candidates, back.risk) == (found.chosen, found.candidates, found.risk)
    assert msgspec.json.decode(msgspec.json.encode(to_wire(found)))["rulings"]["run"]["verdict"] == "demand"


async def test_other_rules_are_tried_by_who_operates(ops: Operations) -> None:
    """A rulebook may be made to take very long, and every agent may read."""
    await person(ops, "olga", "operator")
    await person(ops, "bob", "reviewer")
    await api_rulebook.apply_rulebook(ops.services, LOCAL, ApplyRulebook(rules=RULES))
    tried: dict[str, Any] = {"guard": [{"do": "deny", "name": "*", "reason": "never"}]}
    olga, bob = await by(ops, "olga", "check_policies"), await by(ops, "bob", "check_policies")
    other = await api_rulebook.check_policies(ops.services, olga, CheckPolicies(name="greet", score=80.0, rules=tried))
    assert (other.rulings[GuardOccasion.RUN].verdict, other.is_assessed) == (GuardRulesVerdict.DENY, False)
    assert (await api_rulebook.get_rulebook(ops.services, LOCAL)).version == 1
    with pytest.raises(InvalidRulebook):
        await api_rulebook.check_policies(ops.services, olga, CheckPolicies(name="greet", rules={"gard": []}))
    wrong: dict[str, Any] = {"gard": []}
    for rules in (tried, wrong):
        with pytest.raises(NotPermitted, match="operate"):
            await api_rulebook.check_policies(ops.services, bob, CheckPolicies(name="greet", rules=rules))
