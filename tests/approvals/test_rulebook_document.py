"""The rulebook: read from what people write, with every mistake named, and the same again when it is written down."""

import tomllib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.approvals.digest import digest_of
from ade.approvals.errors import InvalidRulebook
from ade.approvals.model import Recheck
from ade.approvals.risk import RiskLevel
from ade.approvals.rulebook import Rulebook, criticalities_of
from ade.approvals.rulebook_document import as_document, read_rulebook
from tests.domain import GuardOccasion, GuardRulesVerdict

BOOK = """
[criticality]
"db:production" = 90
"repo:*" = 40

[[guard]]
name = "shell*"
when = { command = "*rm -rf*", "options.force" = true, nested.depth = [3, "three"] }
at = ["run", "tool"]
do = "demand"
policy = "two-eyes"
reason = "removes files"

[[guard]]
paths = ["/etc/**", "*.env"]
resources = "db:*"
tags = ["risky"]
from_score = 50
do = "deny"
reason = "not here"

[[policy]]
id = "two-eyes"
names = ["deploy*"]
tags = ["release"]
resource_types = ["db"]
from_level = "high"
rules = [{ needed = 2, roles = ["Reviewer"], users = ["Ada", "BOB"], name = "seniors" }]
deny_threshold = 2
veto_roles = ["security"]
expires_after = "1h30m"
valid_for = "4h"
steps = [{ after = "15m", roles = ["admin"] }]
authors_may_vote = true
roles_travel = true
recheck = "roles"
auto_approve = "medium"
high_risk_in_batch = true
"""


def test_everything_that_can_be_said_is_read() -> None:
    book = read_rulebook(tomllib.loads(BOOK), version=7)
    first, second = book.guard
    [entry] = book.policies

    assert (book.version, book.criticality) == (7, {"db:production": 90, "repo:*": 40})
    assert (first.name, first.do, first.policy) == ("shell*", GuardRulesVerdict.DEMAND, "two-eyes")
    assert dict(first.when) == {"command": ("*rm -rf*",), "options.force": (True,), "nested.depth": (3, "three")}
    assert first.at == {GuardOccasion.RUN, GuardOccasion.TOOL}
    assert (second.resources, second.from_score, second.at) == (("db:*",), 50, frozenset(GuardOccasion))
    assert entry.policy.rules[0].users == {"ada", "bob"}
    assert entry.policy.rules[0].roles == {"reviewer"}
    assert (entry.policy.expires_after_ms, entry.policy.valid_for_ms) == (5_400_000, 14_400_000)
    assert (entry.policy.recheck, entry.policy.steps[0].after_ms) == (Recheck.ROLES, 900_000)
    assert (entry.from_level, entry.auto_approve) == (RiskLevel.HIGH, RiskLevel.MEDIUM)


def test_what_is_written_down_is_read_as_the_same() -> None:
    book = read_rulebook(tomllib.loads(BOOK), version=3)

    assert read_rulebook(as_document(book), version=3) == book
    assert as_document(read_rulebook({})) == {"criticality": {}, "guard": [], "policy": []}


def change(path: str, value: object) -> dict[str, Any]:
    """The book with one thing in it replaced."""
    data: dict[str, Any] = tomllib.loads(BOOK)
    here: Any = data
    *way, last = path.split("/")
    for step in way:
        here = here[int(step)] if step.isdigit() else here[step]
    if value is ...:
        del here[last]
    else:
        here[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("guards", [], "guards is unknown; did you mean guard?"),
        ("guard", {}, "guard must be a list of tables"),
        ("guard/0/do", ..., "guard[1].do is missing"),
        ("guard/1/do", "forbid", 'guard[2].do must be "allow", "deny" or "demand", not \'forbid\''),
        ("guard/1/reason", ..., "guard[2].reason is missing"),
        ("guard/1/policy", "two-eyes", 'guard[2].policy is only valid with do = "demand"'),
        ("guard/0/policy", "four-eyes", "guard[1].policy names 'four-eyes'"),
        ("guard/0/wen", {}, "guard[1].wen is unknown; did you mean when?"),
        ("guard/0/when/command", [], "guard[1].when.command must be a pattern for text, a number, true, false, or"),
        ("guard/0/when/command", [[1]], "guard[1].when.command must be a pattern for text, a number, true, false, or"),
        ("guard/0/when/nested", {"depth": None}, "guard[1].when.nested.depth must be a pattern"),
        ("guard/0/when/nested.depth", 1, "guard[1].when names the argument 'nested.depth' twice"),
        ("guard/0/when", [], "guard[1].when must be a table"),
        ("guard/0/at", ["start"], 'guard[1].at must be "enqueue", "run" or "tool"'),
        ("guard/1/paths", [], "guard[2].paths must be a list of texts"),
        ("guard/1/paths", [7], "guard[2].paths must be text of 1 to 1000 characters, not 7"),
        ("guard/1/from_score", 101, "guard[2].from_score must be a number from 0 to 100, not 101"),
        ("guard/1/from_score", True, "guard[2].from_score must be a number"),
        ("guard/1/from_score", float("nan"), "guard[2].from_score must be a number"),
        ("criticality/repo:*", 101, "criticality.repo:* must be a whole number from 0 to 100"),
        ("criticality", 5, "criticality must be a table"),
        ("policy/0/id", ..., "policy[1].id is missing"),
        ("policy/0/id", "a+b", "policy[1].id must not have a plus sign"),
        ("policy/0/rules", ..., "policy[1].id = 'two-eyes': a policy has 1 to 20 rules"),
        ("policy/0/rules/0/needed", 0, "policy[1].rules[1].needed must be a whole number from 1 to 20"),
        ("policy/0/rules/0/users", ["a b"], "policy[1].rules[1].users must name accounts"),
        ("policy/0/rules/0/roles", ["a b"], "policy[1].rules[1].roles must name roles"),
        ("policy/0/rules/0/who", "ada", "policy[1].rules[1].who is unknown"),
        ("policy/0/expires_after", 60, 'policy[1].expires_after must be a time such as "90s"'),
        ("policy/0/expires_after", "31d", 'at most "30d"'),
        ("policy/0/steps/0/after", ..., "policy[1].steps[1].after is missing"),
        ("policy/0/steps/0/after", "2h", "escalation steps come one after the other"),
        ("policy/0/recheck", "never", 'policy[1].recheck must be "active" or "roles"'),
        ("policy/0/auto_approve", "high", 'policy[1].auto_approve must be "low" or "medium"'),
        ("policy/0/authors_may_vote", "yes", "policy[1].authors_may_vote must be true or false"),
        ("policy/0/from_level", "huge", 'policy[1].from_level must be "low", "medium", "high" or "critical"'),
    ],
)
def test_a_mistake_is_named_with_its_place(path: str, value: object, told: str) -> None:
    with pytest.raises(InvalidRulebook) as refused:
        read_rulebook(change(path, value))

    assert told in refused.value.detail


def test_two_policies_of_one_name_are_refused() -> None:
    data = tomllib.loads(BOOK)
    data["policy"].append(data["policy"][0])

    with pytest.raises(InvalidRulebook, match=r"policy\[2\]\.id is 'two-eyes', which an earlier policy has already"):
        read_rulebook(data)


def test_the_longest_pattern_says_how_critical_something_is() -> None:
    book = read_rulebook({"criticality": {"*": 5, "db:*": 50, "db:prod*": 90, "db:production-copy": 20}})
    resources = ["db:test", "db:production", "DB:PRODUCTION-COPY", "host:a"]

    assert criticalities_of(book, resources) == (50, 90, 20, 5)
    assert criticalities_of(Rulebook(), ["db:main"]) == (0,)


words = st.text("abc*?.:/-", min_size=1, max_size=8)
names = st.text("abcxyz", min_size=1, max_size=6)
scalars = words | st.booleans() | st.integers(-9, 9) | st.floats(0, 1)
lists = st.lists(words, min_size=1, max_size=3)
times = st.sampled_from(["90s", "15m", "4h", "7d", "1h30m", "1500ms"])


def some(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


guards = some(
    {"do": st.sampled_from(["allow", "deny", "demand"]), "reason": words},
    {
        "name": words,
        "tool": words,
        "when": st.dictionaries(words, scalars | st.lists(scalars, min_size=1, max_size=3), max_size=3),
        "paths": lists,
        "resources": lists,
        "tags": lists,
        "from_score": st.integers(0, 100) | st.floats(0, 100),
        "at": st.lists(st.sampled_from(["enqueue", "run", "tool"]), min_size=1),
    },
)
rules = some({"needed": st.integers(1, 3), "roles": st.lists(names, min_size=1, max_size=3)}, {"name": words})
policies = some(
    {"id": names, "rules": st.lists(rules, min_size=1, max_size=3)},
    {
        "names": lists,
        "tags": lists,
        "resource_types": lists,
        "from_level": st.sampled_from(list(map(str, RiskLevel))),
        "deny_threshold": st.integers(1, 5),
        "veto_roles": st.lists(names, min_size=1, max_size=2),
        "expires_after": times,
        "valid_for": times,
        "authors_may_vote": st.booleans(),
        "roles_travel": st.booleans(),
        "recheck": st.sampled_from(["active", "roles"]),
        "auto_approve": st.sampled_from(["low", "medium"]),
        "high_risk_in_batch": st.booleans(),
    },
)
books = some(
    {},
    {
        "criticality": st.dictionaries(words, st.integers(0, 100), max_size=3),
        "guard": st.lists(guards, max_size=4),
        "policy": st.lists(policies, max_size=4, unique_by=lambda policy: policy["id"]),
    },
)


@given(books)
def test_whatever_is_read_is_the_same_when_it_is_written_and_read_again(data: dict[str, Any]) -> None:
    book = read_rulebook(data)
    again = read_rulebook(as_document(book))

    assert again == book
    assert digest_of(as_document(again)) == digest_of(as_document(book))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["guard", "policy", "criticality"]), st.data())
def test_any_other_data_is_read_or_refused_and_nothing_else_happens(part: str, data: st.DataObject) -> None:
    fields = ["do", "when", "paths", "at", "reason", "from_score", "id", "rules", "steps", "expires_after", "valid_for"]
    strange = data.draw(st.dictionaries(st.sampled_from(fields), json_values, max_size=4) | json_values)

    for given_data in (strange, {part: strange}, {part: [strange]}):
        with suppress(InvalidRulebook):
            written = as_document(read_rulebook(given_data))
            assert digest_of(as_document(read_rulebook(written))) == digest_of(written)
