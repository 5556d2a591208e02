"""Which policy a task needs: everything that is for it counts, and the strictest of it."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.approvals.errors import InvalidPolicy
from ade.approvals.gates import fill, rules_in_force
from ade.approvals.model import Gate, Policy, Recheck, Subject, Timeouts, check_policy
from ade.approvals.risk import Risk, RiskLevel, Thresholds, level_of, usual_quorum
from ade.approvals.rulebook import USUAL, Rulebook, SelectedPolicy, policy_for
from tests.domain import read_rulebook

HOUR = 3_600_000
USUAL_TIMES = Timeouts()


def risk(score: float) -> Risk:
    level = level_of(score, Thresholds())
    return Risk(score=score, level=level, criticality=0, magnitude=0, blast_radius=0, failure_rate=0)


def book(*policies: dict[str, Any]) -> Rulebook:
    usual = {"rules": [{"needed": 1, "roles": ["reviewer"]}]}
    return read_rulebook({"policy": [usual | policy for policy in policies]}, version=4)


def chosen(
    rulebook: Rulebook,
    *named: str,
    name: str = "deploy",
    tags: str = "",
    types: str = "",
    score: float = 10,
    timeouts: Timeouts = USUAL_TIMES,
) -> SelectedPolicy:
    about = risk(score)
    subject = Subject(
        name=name, tags=frozenset(tags.split()), resource_types=frozenset(types.split()), level=about.level
    )
    return policy_for(rulebook, subject, about, named, timeouts)


def test_where_no_policy_fits_the_usual_quorum_counts() -> None:
    low, high = chosen(book(), score=10), chosen(book(), score=60)

    assert (low.ids, low.policy.version) == ((USUAL,), 4)
    assert [rule.needed for rule in low.policy.rules] == [1]
    assert low.policy.rules[0].roles == {"reviewer", "admin"}
    assert (low.policy.expires_after_ms, low.policy.valid_for_ms) == (24 * HOUR, 24 * HOUR)
    assert low.policy.recheck is Recheck.ACTIVE
    assert [rule.needed for rule in high.policy.rules] == [2]
    assert (high.policy.valid_for_ms, high.policy.recheck) == (4 * HOUR, Recheck.ROLES)
    assert high.auto_approve is None


def test_a_policy_is_for_what_fits_all_its_conditions() -> None:
    rulebook = book(
        {"id": "one", "names": ["deploy*"], "tags": ["release"], "resource_types": ["db"], "from_level": "medium"}
    )

    assert chosen(rulebook, name="deploy-app", tags="release x", types="db host", score=30).ids == ("one",)
    assert chosen(rulebook, name="mail", tags="release", types="db", score=30).ids == (USUAL,)
    assert chosen(rulebook, tags="other", types="db", score=30).ids == (USUAL,)
    assert chosen(rulebook, tags="release", score=30).ids == (USUAL,)
    assert chosen(rulebook, tags="release", types="db", score=10).ids == (USUAL,)


def test_a_policy_without_conditions_must_be_named() -> None:
    rulebook = book({"id": "asked"}, {"id": "general", "names": ["*"]})

    assert chosen(rulebook).ids == ("general",)
    assert chosen(rulebook, "asked").ids == ("asked", "general")
    assert chosen(rulebook, "asked").why == (
        "policy asked: it was requested by name",
        "policy general: the name deploy fits '*'",
    )


def test_a_name_that_no_policy_has_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="no policy 'nobody' is in the rulebook"):
        chosen(book({"id": "asked"}), "nobody")


def test_policies_together_are_as_strict_as_the_strictest() -> None:
    rulebook = book(
        {
            "id": "a",
            "names": ["*"],
            "rules": [{"needed": 1, "roles": ["dba"]}],
            "deny_threshold": 2,
            "veto_roles": ["security"],
            "expires_after": "8h",
            "valid_for": "2h",
            "steps": [{"after": "1h", "roles": ["admin"]}, {"after": "5h", "users": ["eve"]}],
            "authors_may_vote": True,
            "roles_travel": True,
            "auto_approve": "medium",
        },
        {
            "id": "b",
            "names": ["deploy"],
            "rules": [{"needed": 2, "roles": ["reviewer"]}],
            "veto_roles": ["legal"],
            "expires_after": "4h",
            "valid_for": "3h",
            "steps": [{"after": "30m", "roles": ["lead"]}, {"after": "1h", "users": ["ada"]}],
            "authors_may_vote": True,
            "recheck": "roles",
            "auto_approve": "low",
        },
    )
    found = chosen(rulebook)
    policy = found.policy

    assert (policy.id, policy.version) == ("a+b", 4)
    assert [(rule.needed, sorted(rule.roles)) for rule in policy.rules] == [(1, ["dba"]), (2, ["reviewer"])]
    assert (policy.deny_threshold, sorted(policy.veto_roles)) == (1, ["legal", "security"])
    assert (policy.expires_after_ms, policy.valid_for_ms) == (4 * HOUR, 2 * HOUR)
    assert [(step.after_ms, sorted(step.users), sorted(step.roles)) for step in policy.steps] == [
        (HOUR // 2, [], ["lead"]),
        (HOUR, [], ["admin"]),
        (HOUR, ["ada"], []),
    ]
    assert [step.policy for step in policy.steps] == [1, 0, 1]
    assert (policy.authors_may_vote, policy.roles_travel, policy.recheck) == (True, False, Recheck.ROLES)
    assert (found.auto_approve, found.high_risk_in_batch) == (RiskLevel.LOW, False)


def test_what_two_policies_want_of_the_same_people_is_wanted_once() -> None:
    rulebook = book(
        {"id": "a", "names": ["*"], "rules": [{"needed": 2, "roles": ["reviewer"], "name": "reviewers"}]},
        {"id": "b", "names": ["*"], "rules": [{"needed": 1, "roles": ["reviewer"]}] * 3},
    )

    [rule] = chosen(rulebook).policy.rules
    assert (rule.needed, rule.name) == (3, "reviewers")


def test_nothing_passes_by_itself_unless_all_say_so() -> None:
    rulebook = book({"id": "a", "names": ["*"], "auto_approve": "low"}, {"id": "b", "tags": ["careful"]})

    assert chosen(rulebook).auto_approve is RiskLevel.LOW
    assert chosen(rulebook, tags="careful").auto_approve is None


def test_a_high_risk_is_approved_for_less_unless_the_rulebook_says_otherwise() -> None:
    rulebook = book(
        {"id": "silent", "tags": ["silent"]},
        {"id": "firm", "tags": ["firm"], "valid_for": "7d", "recheck": "active"},
    )

    silent, firm = (chosen(rulebook, tags=tag, score=60).policy for tag in ("silent", "firm"))
    assert (silent.valid_for_ms, silent.recheck) == (4 * HOUR, Recheck.ROLES)
    assert (firm.valid_for_ms, firm.recheck) == (168 * HOUR, Recheck.ACTIVE)
    assert chosen(rulebook, tags="silent", score=10).policy.valid_for_ms == 24 * HOUR


def test_more_than_any_policy_may_demand_is_refused() -> None:
    many = [{"needed": 1, "roles": [f"role{number}"]} for number in range(15)]
    rulebook = book(
        {"id": "a", "names": ["*"], "rules": many},
        {"id": "b", "names": ["*"], "rules": [{"needed": 1, "users": [f"u{number}"]} for number in range(15)]},
    )

    with pytest.raises(InvalidPolicy, match="1 to 20 rules"):
        chosen(rulebook)


entries = st.fixed_dictionaries(
    {"names": st.sampled_from([["*"], ["deploy"], ["mail"]])},
    optional={
        "rules": st.lists(
            st.fixed_dictionaries(
                {"needed": st.integers(1, 3), "roles": st.lists(st.sampled_from("abc"), min_size=1, unique=True)}
            ),
            min_size=1,
            max_size=3,
        ),
        "deny_threshold": st.integers(1, 4),
        "expires_after": st.sampled_from(["2h", "5h", "9h"]),
        "valid_for": st.sampled_from(["2h", "5h", "9h"]),
        "steps": st.just([{"after": "1h", "roles": ["lead"]}]),
        "authors_may_vote": st.booleans(),
        "recheck": st.sampled_from(["active", "roles"]),
        "auto_approve": st.sampled_from(["low", "medium"]),
    },
)


def needs(policy: Policy) -> Counter[tuple[frozenset[str], frozenset[str]]]:
    """How many approvals a policy needs of the same people."""
    found = Counter[tuple[frozenset[str], frozenset[str]]]()
    for rule in policy.rules:
        found[rule.users, rule.roles] += rule.needed
    return found


@given(st.lists(entries, min_size=1, max_size=5), st.floats(0, 100))
def test_one_more_policy_never_makes_it_easier(listed: list[dict[str, Any]], score: float) -> None:
    policies = [{"id": f"p{number}"} | entry for number, entry in enumerate(listed)]
    fewer, more = chosen(book(*policies[:-1]), score=score), chosen(book(*policies), score=score)
    check_policy(more.policy)
    if fewer.ids == (USUAL,):
        assert fewer.policy.rules[0].needed == usual_quorum(score)
        return

    have, had = needs(more.policy), needs(fewer.policy)
    if len(fewer.ids) > 1:
        assert all(have[people] >= needed for people, needed in had.items())
    assert sum(rule.needed for rule in more.policy.rules) >= sum(rule.needed for rule in fewer.policy.rules)
    assert more.policy.deny_threshold <= fewer.policy.deny_threshold
    assert more.policy.valid_for_ms <= fewer.policy.valid_for_ms
    assert more.policy.expires_after_ms <= fewer.policy.expires_after_ms
    assert more.policy.authors_may_vote <= fewer.policy.authors_may_vote
    assert fewer.auto_approve is not None or more.auto_approve is None


def test_a_policy_that_names_no_time_expires_after_the_usual_one() -> None:
    admins = {"roles": ["admin"]}
    steps = [{"after": "1h", **admins}, {"after": "2h", **admins}]
    rulebook = book(
        {"id": "silent", "steps": steps},
        {"id": "said", "expires_after": "24h"},  # as long as usual, but it says so
        {"id": "long", "expires_after": "30d"},
    )
    quick = Timeouts(usual_ms=2 * HOUR, longest_ms=72 * HOUR)

    silent = chosen(rulebook, "silent", timeouts=quick).policy
    assert (silent.expires_after_ms, [step.after_ms for step in silent.steps]) == (2 * HOUR, [HOUR])
    assert chosen(rulebook, "said", timeouts=quick).policy.expires_after_ms == 24 * HOUR
    assert chosen(rulebook, "long", timeouts=quick).policy.expires_after_ms == 72 * HOUR
    assert chosen(rulebook, "long").policy.expires_after_ms == 720 * HOUR
    assert chosen(rulebook, "silent", "said", timeouts=quick).policy.expires_after_ms == 2 * HOUR
    assert chosen(book(), timeouts=quick).policy.expires_after_ms == 2 * HOUR
    assert len(chosen(rulebook, "silent", timeouts=Timeouts(usual_ms=48 * HOUR)).policy.steps) == 2


@given(
    st.sampled_from([None, "2h", "5h", "9h"]),
    st.lists(st.sampled_from([30, 60, 90]), unique=True).map(sorted),
    st.integers(1, 720 * HOUR),
    st.integers(1, 720 * HOUR),
)
def test_no_policy_stays_open_for_longer_than_any_may(
    said: str | None, moments: list[int], usual_ms: int, longest_ms: int
) -> None:
    steps = [{"after": f"{minutes}m", "roles": ["admin"]} for minutes in moments]
    written = {} if said is None else {"expires_after": said}
    timeouts = Timeouts(usual_ms=usual_ms, longest_ms=longest_ms)

    policy = chosen(book({"id": "one", "steps": steps, **written}), "one", timeouts=timeouts).policy

    check_policy(policy)
    assert policy.expires_after_ms == min(usual_ms if said is None else int(said[0]) * HOUR, longest_ms)
    assert [step.after_ms for step in policy.steps] == [
        minutes * 60_000 for minutes in moments if minutes * 60_000 < policy.expires_after_ms
    ]


_PEOPLE = {"ann": {"a"}, "bob": {"a", "b"}, "cyd": {"b"}, "dee": {"b", "c"}, "eli": {"c"}}
_rules = st.lists(
    st.builds(
        lambda needed, roles: {"needed": needed, "roles": sorted(roles)},
        st.integers(1, 3),
        st.sets(st.sampled_from("abc"), min_size=1),
    ),
    min_size=1,
    max_size=3,
)


@given(
    required=st.lists(_rules, min_size=1, max_size=2),
    chosen=st.lists(_rules, max_size=2),
    approving=st.sets(st.sampled_from(sorted(_PEOPLE))),
)
def test_whatever_the_author_chooses_the_required_rules_are_met(
    required: list[list[dict[str, object]]], chosen: list[list[dict[str, object]]], approving: set[str]
) -> None:
    """Everyone who meets the combined policy meets what would be required without the author's choice."""
    names = [f"r{number}" for number in range(len(required))], [f"c{number}" for number in range(len(chosen))]
    policies = [
        {"id": name, "rules": rules} for name, rules in zip([*names[0], *names[1]], [*required, *chosen], strict=True)
    ]
    rulebook = read_rulebook({"policy": policies})
    subject = Subject(name="pay", tags=frozenset(), resource_types=frozenset(), level=RiskLevel.LOW)
    about = risk(10)

    def is_met(policy: Policy) -> bool:
        able = {
            who: frozenset(n for n, rule in enumerate(policy.rules) if rule.roles & _PEOPLE[who]) for who in approving
        }
        needed = [rule.needed for rule in policy.rules]
        return len(fill(needed, able)) == sum(needed)

    alone = policy_for(rulebook, subject, about, names[0]).policy
    together = policy_for(rulebook, subject, about, names[0], chosen=names[1]).policy
    assert not is_met(together) or is_met(alone)


_steps = st.one_of(
    st.just([]),
    st.builds(lambda roles: [{"after": "1h", "roles": sorted(roles)}], st.sets(st.sampled_from("abc"), min_size=1)),
)


@given(
    required=st.lists(st.tuples(_rules, _steps), min_size=1, max_size=3),
    chosen=st.lists(st.tuples(_rules, _steps), max_size=2),
    approving=st.sets(st.sampled_from(sorted(_PEOPLE))),
)
def test_an_escalation_of_one_policy_opens_no_other(
    required: list[tuple[list[dict[str, object]], list[dict[str, object]]]],
    chosen: list[tuple[list[dict[str, object]], list[dict[str, object]]]],
    approving: set[str],
) -> None:
    """Everyone who meets the combined policy after all escalations meets each required policy after its own, and what
    the author chose without any."""
    listed = [(f"r{number}", *each) for number, each in enumerate(required)]
    listed += [(f"c{number}", *each) for number, each in enumerate(chosen)]
    rulebook = read_rulebook(
        {"policy": [{"id": name, "rules": rules, "steps": steps} for name, rules, steps in listed]}
    )
    names = [name for name, _, _ in listed]
    subject = Subject(name="pay")
    together = policy_for(rulebook, subject, risk(10), names[: len(required)], chosen=names[len(required) :]).policy

    def is_met(policy: Policy, at: int) -> bool:
        rules = rules_in_force(opened(policy), at)
        able = {who: frozenset(n for n, rule in enumerate(rules) if rule.roles & _PEOPLE[who]) for who in approving}
        needed = [rule.needed for rule in rules]
        return len(fill(needed, able)) == sum(needed)

    check_policy(together)
    if is_met(together, 2 * HOUR):
        for name in names:
            [alone] = [entry.policy for entry in rulebook.policies if entry.policy.id == name]
            assert is_met(alone, 2 * HOUR if name.startswith("r") else 0), name


def opened(policy: Policy) -> Gate:
    """A gate under this policy, opened at 0."""
    return Gate(
        id="t.1",
        task_id="t",
        digest="d",
        subject=Subject(name="pay"),
        policy=policy,
        conflicts=frozenset(),
        opened_at=0,
    )


def test_steps_stay_with_the_rules_of_their_policy() -> None:
    rulebook = book(
        {
            "id": "a",
            "names": ["*"],
            "rules": [{"needed": 2, "roles": ["reviewer"]}, {"needed": 1, "roles": ["dba"]}],
            "steps": [{"after": "1h", "roles": ["lead", "admin"]}],
        },
        {
            "id": "b",
            "names": ["*"],
            "rules": [{"needed": 1, "roles": ["reviewer"]}],
            "steps": [{"after": "1h", "roles": ["admin", "boss"]}],
        },
        {"id": "c", "names": ["*"], "rules": [{"needed": 1, "roles": ["security"]}]},
    )
    gate = opened(chosen(rulebook).policy)

    def at(now: int) -> list[tuple[int, list[str]]]:
        return [(rule.needed, sorted(rule.roles)) for rule in rules_in_force(gate, now)]

    assert at(0) == [(1, ["reviewer"]), (1, ["reviewer"]), (1, ["dba"]), (1, ["security"])]
    assert at(HOUR) == [
        (1, ["admin", "reviewer"]),  # counts for both, so both must add the voter
        (1, ["admin", "lead", "reviewer"]),  # what only `a` needs
        (1, ["admin", "dba", "lead"]),
        (1, ["security"]),
    ]


def test_gates_from_before_steps_had_a_policy_are_read_as_they_were() -> None:
    stored = {
        "id": "t.1",
        "task_id": "t",
        "digest": "d",
        "subject": {"name": "pay"},
        "conflicts": [],
        "opened_at": 0,
        "policy": {
            "id": "a+b",
            "rules": [{"needed": 1, "users": ["ada"]}, {"needed": 1, "users": ["bob"]}],
            "steps": [{"after_ms": 1_000, "users": ["eve"]}],
        },
    }
    rules = rules_in_force(msgspec.convert(stored, Gate), 1_000)
    assert [sorted(rule.users) for rule in rules] == [["ada", "eve"], ["bob", "eve"]]


def test_an_author_who_asks_for_two_where_one_is_required_gets_two() -> None:
    rulebook = book({"id": "one"}, {"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]})
    policy = policy_for(rulebook, Subject(name="pay"), risk(10), ["one"], chosen=["two"]).policy
    assert sum(rule.needed for rule in policy.rules) == 2
