"""What is known of a task without asking its author, and that an author who declares more never gets by with less."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.accounts.model import Directory
from ade.approvals.digest import Preview
from ade.approvals.gates import fill
from ade.approvals.guard import GuardCase, GuardOccasion, GuardRulesVerdict, GuardRuling, rule_on
from ade.approvals.model import Policy
from ade.approvals.repository import ApprovalInputs, risk_from
from ade.approvals.review_requests import ReviewerDirectory
from ade.approvals.risk import ResourceSource, Risk, RiskLevel
from ade.approvals.rulebook import USUAL, Rulebook, TaskFacts, facts_of, policy_for
from ade.settings.runtime import RuntimeSettings
from tests.domain import Definition, read_rulebook

AUTHOR, DEFINITION, PREVIEW, ARGUMENTS = ResourceSource
TABLES = {"names": ["db.*"], "argument": "job.table", "resource": "table:{value}"}
_STRENGTH = {GuardRulesVerdict.ALLOW: 0, GuardRulesVerdict.DEMAND: 1, GuardRulesVerdict.DENY: 2}


def risk_of(rulebook: Rulebook, facts: TaskFacts) -> Risk:
    inputs = ApprovalInputs(rulebook, RuntimeSettings(), ReviewerDirectory(Directory()))
    return risk_from(inputs, facts, (0, 0))


def ruling_on(rulebook: Rulebook, facts: TaskFacts) -> GuardRuling:
    score, trusted_score = risk_of(rulebook, facts).score, risk_of(rulebook, facts.without_authors()).score
    case = GuardCase(
        name="pay",
        resources=tuple(facts.resources),
        tags=facts.tags,
        score=score,
        trusted_resources=facts.trusted_resources,
        trusted_tags=facts.trusted_tags,
        trusted_score=trusted_score,
    )
    return rule_on(rulebook, case, GuardOccasion.ENQUEUE)


def required_by(ruling: GuardRuling) -> set[str]:
    if ruling.verdict is not GuardRulesVerdict.DEMAND:
        return set()
    return {policy or USUAL for policy in (ruling.policy, *ruling.more_policies)}


def test_every_resource_says_where_it_was_named() -> None:
    facts = facts_of(
        read_rulebook({"resource": [TABLES]}),
        "db.clean",
        arguments={"job": {"table": ["orders", "people"]}},
        definition=Definition(name="db.clean", resources=("db:main",), tags=("data",)),
        preview=Preview(changes=[{"resource": "file:1"}, "a note"], versions={"table:orders": "7"}),
        declared=("db:main", "doc:readme"),
        tags=("docs",),
    )

    assert facts.resources == {
        "db:main": (AUTHOR, DEFINITION),
        "table:orders": (PREVIEW, ARGUMENTS),
        "table:people": (ARGUMENTS,),
        "file:1": (PREVIEW,),
        "doc:readme": (AUTHOR,),
    }
    assert set(facts.trusted_resources) == {"db:main", "table:orders", "table:people", "file:1"}
    assert facts.tags == {"data", "docs"}
    assert facts.trusted_tags == {"data"}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"table": "people"}, {"table:people"}),
        ({"table": ["people", 7]}, {"table:people", "table:7"}),
        ({"table": {"people": {"rows": 5}}}, {"table:people", "table:rows", "table:5"}),
        ({"table": None}, set()),
        ({}, {"table:orders"}),
    ],
)
def test_a_value_of_any_form_is_read_and_an_omitted_one_has_its_default(arguments: Any, found: set[str]) -> None:
    rulebook = read_rulebook({"resource": [{"argument": "table", "resource": "table:{value}"}]})
    schema = {"properties": {"table": {"type": "string", "default": "orders"}}}
    facts = facts_of(rulebook, "clean", arguments=arguments, definition=Definition(name="clean", schema=schema))

    assert set(facts.resources) == found


def test_a_rollback_changes_what_its_task_changes() -> None:
    facts = facts_of(read_rulebook({"resource": [TABLES]}), "db.clean:rollback", arguments={"job": {"table": "people"}})

    assert set(facts.resources) == {"table:people"}


@pytest.mark.parametrize(
    ("section", "wrong", "message"),
    [
        ("resource", [{"resource": "table:{value}"}], "resource[1].argument is missing"),
        ("resource", [{"argument": "table"}], "resource[1].resource is missing"),
        ("resource", [{"argument": "table", "resource": "table:x"}], "must contain {value}"),
        ("resource", [{"argument": "a", "resource": "t:{value}{x}"}], "no other braces"),
        ("resource", [{"argument": "a", "resource": "t:{value}", "name": "x"}], "did you mean names?"),
        ("risk", {"unknown_resources": "severe"}, "risk.unknown_resources must be"),
        ("risk", {"unknown_resources": 101}, "risk.unknown_resources must be a number from 0 to 100"),
        ("risk", {"window": "soon"}, "risk.window must be a time"),
        ("risk", {"windows": "1h"}, "did you mean window?"),
    ],
)
def test_a_mistake_in_the_rules_about_risk_is_named(section: str, wrong: Any, message: str) -> None:
    from ade.approvals.errors import InvalidRulebook

    with pytest.raises(InvalidRulebook) as refused:
        read_rulebook({section: wrong})
    assert message in refused.value.detail


def test_without_server_side_facts_the_risk_is_critical_if_the_rulebook_rates_resources() -> None:
    rated = read_rulebook({"criticality": {"bank:*": 50}})
    for declared in ((), ("doc:readme",), ("bank:main",)):
        risk = risk_of(rated, facts_of(rated, "pay", declared=declared))
        assert (risk.level, risk.criticality, risk.is_unknown) == (RiskLevel.CRITICAL, 100, True)
    known = facts_of(rated, "pay", definition=Definition(name="pay", resources=("doc:readme",)))
    assert risk_of(rated, known).level is RiskLevel.LOW
    assert risk_of(Rulebook(), facts_of(Rulebook(), "pay")).level is RiskLevel.LOW  # no resource matters here


@pytest.mark.parametrize(
    ("unknown", "level"),
    [("low", "low"), ("medium", "medium"), ("high", "high"), ("critical", "critical"), (60, "high"), (0, "low")],
)
def test_how_dangerous_the_unknown_is_can_be_set(unknown: str | int, level: str) -> None:
    rulebook = read_rulebook({"risk": {"unknown_resources": unknown}})

    assert risk_of(rulebook, facts_of(rulebook, "pay")).level == level


_names = st.sampled_from(["doc:a", "doc:*", "bank:main", "bank:*", "db:x", "bank"])
_tags = st.sampled_from(["docs", "money", "night"])
_rules = st.lists(
    st.fixed_dictionaries(
        {"do": st.sampled_from(["allow", "deny", "demand"]), "reason": st.just("because")},
        optional={
            "resources": st.lists(st.sampled_from(["doc:*", "bank:*", "*"]), min_size=1, max_size=2),
            "tags": st.lists(_tags, min_size=1, max_size=2),
            "from_score": st.sampled_from([10, 30, 60]),
        },
    ),
    max_size=4,
)
_books = st.builds(
    lambda rules, criticality, policies: {
        "guard": [
            {**rule, "policy": policy} if rule["do"] == "demand" and policy in ("p", "q") else rule
            for rule, policy in zip(rules, policies, strict=False)
        ],
        "criticality": criticality,
        "policy": [{"id": each, "rules": [{"needed": 1, "roles": ["reviewer"]}]} for each in ("p", "q")],
    },
    _rules,
    st.dictionaries(st.sampled_from(["doc:*", "bank:*", "*"]), st.integers(0, 100), max_size=2),
    st.lists(st.sampled_from(["p", "q", ""]), min_size=4, max_size=4),
)
_definitions = st.builds(
    lambda resources, tags: Definition(name="pay", resources=tuple(resources), tags=tuple(tags)),
    st.lists(_names, max_size=2),
    st.lists(_tags, max_size=1),
)


@given(_books, _definitions, st.lists(_names, max_size=2), st.lists(_tags, max_size=2), _names, _tags)
def test_declaring_more_never_weakens_the_ruling_or_lowers_the_risk(
    book: dict[str, Any], definition: Definition, declared: list[str], tags: list[str], resource: str, tag: str
) -> None:
    rulebook = read_rulebook(book)
    less = facts_of(rulebook, "pay", definition=definition, declared=declared, tags=tags)
    before, risk = ruling_on(rulebook, less), risk_of(rulebook, less)
    for more_declared, more_tags in (([*declared, resource], tags), (declared, [*tags, tag])):
        more = facts_of(rulebook, "pay", definition=definition, declared=more_declared, tags=more_tags)
        after = ruling_on(rulebook, more)
        assert risk_of(rulebook, more).score >= risk.score
        assert _STRENGTH[after.verdict] >= _STRENGTH[before.verdict]
        assert after.verdict is GuardRulesVerdict.DENY or required_by(after) >= required_by(before)


_PEOPLE = {"r1": {"a"}, "r2": {"a", "b"}, "r3": {"b"}, "r4": {"c", "a"}, "r5": {"c"}}
_policies = st.lists(
    st.fixed_dictionaries(
        {
            "rules": st.lists(
                st.builds(
                    lambda needed, role: {"needed": needed, "roles": [role]},
                    st.integers(1, 2),
                    st.sampled_from("abc"),
                ),
                min_size=1,
                max_size=2,
            )
        },
        optional={
            "tags": st.lists(_tags, min_size=1, max_size=2),
            "resource_types": st.lists(st.sampled_from(["doc", "bank"]), min_size=1, max_size=2),
            "auto_approve": st.sampled_from(["low", "medium"]),
            "authors_may_vote": st.booleans(),
        },
    ),
    max_size=3,
)


@given(_policies, _definitions, st.lists(_names, max_size=2), st.lists(_tags, max_size=2), st.data())
def test_tags_and_resources_of_the_author_only_add_policies(
    entries: list[dict[str, Any]], definition: Definition, declared: list[str], tags: list[str], data: st.DataObject
) -> None:
    rulebook = read_rulebook({"policy": [{"id": f"p{number}", **entry} for number, entry in enumerate(entries)]})
    approving = data.draw(st.sets(st.sampled_from(sorted(_PEOPLE))))

    def chosen(facts: TaskFacts) -> Any:
        risk = risk_of(rulebook, facts)
        return policy_for(rulebook, facts.subject("pay", risk.level), risk, (USUAL,))

    def is_met(policy: Policy) -> bool:
        rules = [rule for rule in policy.rules if rule.name != "reviewers"]  # of the default quorum, with other roles
        able = {who: frozenset(n for n, rule in enumerate(rules) if rule.roles & _PEOPLE[who]) for who in approving}
        needed = [rule.needed for rule in rules]
        return len(fill(needed, able)) == sum(needed)

    alone = chosen(facts_of(rulebook, "pay", definition=definition))
    more = chosen(facts_of(rulebook, "pay", definition=definition, declared=declared, tags=tags))
    assert set(more.ids) >= set(alone.ids)
    assert more.required == alone.required
    assert not is_met(more.policy) or is_met(alone.policy)
    assert more.policy.authors_may_vote <= alone.policy.authors_may_vote
    if alone.auto_approve is None:
        assert more.auto_approve is None
    elif more.auto_approve is not None:
        assert more.auto_approve.rank <= alone.auto_approve.rank
