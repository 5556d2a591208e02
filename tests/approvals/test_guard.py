"""The guard: the first rule that holds decides, small disguises do not help, and what cannot be judged is denied."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from ade.approvals.guard import GuardCase, GuardOccasion, GuardRulesVerdict, GuardRuling, rule_on
from tests.domain import Rulebook, Signature, read_rulebook

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def rulebook(*rules: dict[str, Any]) -> Rulebook:
    return read_rulebook({"guard": [{"reason": "because"} | rule for rule in rules]})


def on(book: Rulebook, occasion: GuardOccasion = GuardOccasion.TOOL, **about: Any) -> GuardRuling:
    return rule_on(book, GuardCase(**({"name": "agent:coder"} | about)), occasion)


def denies(rule: dict[str, Any], **about: Any) -> bool:
    return on(rulebook({"do": "deny"} | rule), **about).verdict is GuardRulesVerdict.DENY


def allows(rule: dict[str, Any], **about: Any) -> bool:
    """Whether the rule lets through what would be denied otherwise."""
    return on(rulebook({"do": "allow"} | rule, {"do": "deny"}), **about).verdict is GuardRulesVerdict.ALLOW


def test_the_first_rule_that_holds_decides_and_says_why() -> None:
    book = read_rulebook(
        {
            "guard": [
                {"name": "shell*", "when": {"command": "git status*"}, "do": "allow"},
                {"name": "shell*", "do": "demand", "policy": "two-eyes", "reason": "commands change things"},
                {"do": "deny", "reason": "nothing else is known here"},
            ],
            "policy": [{"id": "two-eyes", "rules": [{"needed": 2, "roles": ["reviewer"]}]}],
        }
    )

    assert on(book, name="shell", arguments={"command": "git status -s"}) == GuardRuling(
        verdict=GuardRulesVerdict.ALLOW, rule=1, reason=""
    )
    assert on(book, name="shell.run", arguments={"command": "make"}) == GuardRuling(
        verdict=GuardRulesVerdict.DEMAND, rule=2, policy="two-eyes", reason="commands change things"
    )
    assert on(book, name="mail").reason == "nothing else is known here"


def test_without_rules_everything_is_allowed_and_nobody_needs_to_ask() -> None:
    assert on(Rulebook()).verdict is GuardRulesVerdict.ALLOW
    assert not any(Rulebook().guards(occasion) for occasion in GuardOccasion)


def test_a_rule_is_for_its_occasions_alone() -> None:
    book = rulebook({"at": ["run"], "do": "deny"})

    assert [book.guards(occasion) for occasion in GuardOccasion] == [False, True, False]
    assert on(book, GuardOccasion.RUN).verdict is GuardRulesVerdict.DENY
    assert on(book, GuardOccasion.TOOL).verdict is GuardRulesVerdict.ALLOW


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "  rm   -rf /",
        "rm\t-rf\n/",
        "RM -RF /",
        "sudo rm -rf /",
        "'rm' -rf /",
        'r"m" -rf /',
        "r\\m -rf /",
        "rm \\\n-rf /",
        "rm${IFS}-rf /",
        "r\u200bm -rf /",
        "ｒｍ -rf /",  # noqa: RUF001 - wide letters on purpose
        "rm\u00a0-rf /",
        ["rm", "-rf", "/"],
        {"line": "rm -rf /"},
    ],
)
def test_a_command_in_disguise_is_seen(command: object) -> None:
    assert denies({"when": {"command": "*rm -rf*"}}, arguments={"command": command})
    assert denies({"when": {"*": "*rm -rf*"}}, arguments={"steps": [{"do": {"command": command}}]})


@given(st.lists(st.sampled_from([" ", "\t", "\n", "\u00a0", "\u2003"]), min_size=1, max_size=30).map("".join))
def test_padding_does_not_help(space: str) -> None:
    disguised = f"{space}git{space}reset{space}--hard{space}"

    assert denies({"when": {"command": "git reset --hard*"}}, arguments={"command": disguised})
    assert denies({"when": {"command": "git reset --hard"}}, arguments={"command": disguised})


def test_a_comment_does_not_split_a_statement() -> None:
    assert denies({"when": {"*": "*drop table*"}}, arguments={"sql": "DROP/* never mind */TABLE users"})


def test_a_pattern_matches_anywhere_only_with_stars() -> None:
    assert not denies({"when": {"command": "rm -rf*"}}, arguments={"command": "echo rm -rf"})
    assert not denies({"when": {"command": "rm"}}, arguments={"command": "rmdir"})
    assert denies({"when": {"command": "r?"}}, arguments={"command": "rm"})
    assert not denies({"when": {"command": "a*b*a"}}, arguments={"command": "aba b"})


def test_arguments_are_found_by_dotted_paths_and_through_lists() -> None:
    rule = {"when": {"options.force": True}}

    assert denies(rule, arguments={"options": {"force": True}})
    assert denies(rule, arguments={"options.force": True})
    assert denies(rule, arguments={"options": [{"force": False}, {"force": True}]})
    assert not denies(rule, arguments={"options": {"force": 1}})
    assert not denies(rule, arguments={"options": {"force": False}})
    assert not denies(rule, arguments={"force": True})


def test_an_argument_may_be_one_of_several() -> None:
    rule = {"when": {"mode": ["fast*", "wild", 7, False]}}

    fitting: list[Any] = ["faster", "wild", 7, False, ["slow", "wild"]]
    others: list[Any] = ["slow", 8, True, None, []]

    assert all(denies(rule, arguments={"mode": value}) for value in fitting)
    assert not any(denies(rule, arguments={"mode": value}) for value in others)
    assert allows(rule, arguments={"mode": 7})
    assert not allows(rule, arguments={"mode": ["wild", "slow"]})


def test_all_conditions_must_hold() -> None:
    rule = {"tool": "Bash", "when": {"command": "*push*", "options.force": True}}
    arguments = {"command": "git push", "options": {"force": True}}

    assert denies(rule, tool="bash", arguments=arguments)
    assert not denies(rule, tool="Read", arguments=arguments)
    assert not denies(rule, arguments=arguments)
    assert not denies(rule, tool="Bash", arguments={"command": "git push"})


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/etc",
        "/etc/ssl/private/key",
        "//etc//passwd",
        "/var/../etc/passwd",
        "/etc/./passwd",
        "../../etc/passwd",
        "file:///etc/passwd",
        "cat /etc/passwd",
        "cat </etc/passwd",
        "--file=/etc/passwd",
    ],
)
def test_a_path_is_seen_however_it_is_written(path: str) -> None:
    assert denies({"paths": ["/etc/**"]}, arguments={"files": [{"path": path}]})


@pytest.mark.parametrize("path", ["/etcetera/x", "/srv/etc/x", "etc/passwd", "/var/etc/../lib", ""])
def test_other_paths_are_let_alone(path: str) -> None:
    assert not denies({"paths": ["/etc/**"]}, arguments={"path": path})


def test_a_file_name_is_found_in_any_folder() -> None:
    rule = {"paths": ["*.env", ".env", "secrets/*.key"]}

    assert denies(rule, arguments={"path": "/srv/app/prod.env"})
    assert denies(rule, arguments={"command": "cp .env /tmp/x"})
    assert denies(rule, arguments={"path": "/srv/secrets/a.key"})
    assert not denies(rule, arguments={"path": "/srv/secrets/deep/a.key"})
    assert not denies(rule, arguments={"path": "environment"})


def test_resources_tags_and_scores_are_conditions_too() -> None:
    assert denies({"resources": ["db:*"]}, resources=["repo:app", "db:main"])
    assert not denies({"resources": ["db:*"]}, resources=["repo:app"])
    assert denies({"tags": ["nightly", "risky"]}, tags=["risky"])
    assert not denies({"tags": ["nightly"]}, tags=[])
    assert denies({"from_score": 50}, score=50)
    assert not denies({"from_score": 50}, score=49.9)


def test_a_score_that_nobody_knows_never_makes_something_pass() -> None:
    assert denies({"from_score": 50}, score=None)
    assert not allows({"from_score": 0}, score=None)


def test_a_rule_that_allows_holds_only_if_everything_fits() -> None:
    within = {"paths": ["/tmp/**"]}

    assert allows(within, arguments={"from": "/tmp/a", "to": "/tmp/b"})
    assert not allows(within, arguments={"from": "/tmp/a", "to": "/srv/b"})
    assert not allows(within, arguments={"from": "/tmp/../srv/b"})
    assert not allows(within, arguments={"from": "../tmp/b"})
    assert not allows(within, arguments={})
    assert allows({"resources": ["test:*"]}, resources=["test:a"], trusted_resources=["test:a"])
    assert not allows({"resources": ["test:*"]}, resources=["test:a", "db:main"], trusted_resources=["test:a"])
    assert not allows({"when": {"command": "git status"}}, arguments={"command": ["git status", "rm -rf /"]})


def test_what_cannot_be_read_is_denied() -> None:
    book = rulebook({"when": {"*": "*harm*"}, "do": "demand"})

    for broken in (Raw(b'{"command": '), Raw(b"\xff\xfe"), Raw(b"")):
        ruling = on(book, arguments=broken)
        assert ruling.verdict is GuardRulesVerdict.DENY
        assert "could not be evaluated" in ruling.reason
    assert on(book, arguments={"command": object()}).verdict is GuardRulesVerdict.DENY
    assert on(book, arguments=Raw(b'{"command": "no h\\u0061rm"}')).verdict is GuardRulesVerdict.DEMAND


@given(json_values, st.text(), st.text())
def test_nothing_that_anybody_gives_makes_the_guard_fail(value: Any, name: str, tool: str) -> None:
    book = rulebook(
        {"name": "x*", "do": "deny"},
        {"when": {"a.b": "*q*", "c": 1, "*": "*zz*"}, "do": "deny"},
        {"paths": ["/etc/**", "*.env"], "do": "allow"},
        {"resources": ["*:*"], "from_score": 10, "do": "demand"},
    )

    for arguments in ({"a": value}, {"a": {"b": value}, "c": 1}, value):
        ruling = on(book, name=name, tool=tool, arguments=arguments, resources=[name, tool])
        assert "could not be evaluated" not in ruling.reason


rules = st.fixed_dictionaries(
    {"do": st.sampled_from(["allow", "deny", "demand"])},
    optional={"name": st.sampled_from(["a*", "b", "*"]), "at": st.sampled_from([["run"], ["tool"]])},
)


@given(st.lists(rules, max_size=5), st.sampled_from(["a", "b", "ab"]), st.sampled_from(list(GuardOccasion)))
def test_no_rule_behind_the_first_that_holds_is_heard(listed: list[Any], name: str, occasion: GuardOccasion) -> None:
    ruling = on(rulebook(*listed), occasion, name=name)
    each = [on(rulebook(rule), occasion, name=name).rule is not None for rule in listed]

    assert ruling.rule == (each.index(True) + 1 if any(each) else None)
    assert ruling.verdict == (listed[each.index(True)]["do"] if any(each) else GuardRulesVerdict.ALLOW)


def test_deep_and_long_arguments_are_judged() -> None:
    deep: Any = "rm -rf /"
    for _ in range(50_000):
        deep = [deep]

    assert denies({"when": {"*": "*rm -rf*"}}, arguments={"x": deep})
    assert denies({"when": {"*": "*a*a*a*a*a*a*a*a*b"}}, arguments={"x": "a" * 200_000 + "b"})
    assert not denies({"paths": ["*a*a*a*a*a*a*a*a*b"]}, arguments={"x": "a" * 20_000})


class Limits(Struct):
    amount: int = 7
    accounts: tuple[str, ...] = ("main",)


def moves(to: str, limits: Limits, more: list[Limits] | None = None, at: Path = Path("/srv")) -> None: ...


def test_arguments_that_are_left_out_are_judged_with_their_defaults() -> None:
    schema = Signature.of(moves).schema()
    about: dict[str, Any] = {"schema": schema, "arguments": {"to": "ada", "limits": {}, "more": [{}]}}

    assert denies({"when": {"limits.amount": 7}}, **about)
    assert denies({"when": {"limits.accounts": "mai?"}}, **about)
    assert denies({"when": {"more.amount": 7}}, **about)
    assert denies({"paths": ["/srv"]}, **about)
    assert denies({"when": {"*": "main"}}, **about)
    assert not denies({"when": {"limits.amount": 8}}, **about)
    assert not denies({"when": {"limits.amount": 7}}, **about | {"arguments": {"to": "ada", "limits": {"amount": 8}}})


def test_a_default_that_is_not_known_is_denied_and_never_allowed() -> None:
    schema = {"properties": {"to": {"type": "string"}, "by": {}}, "required": ["to"]}

    assert denies({"when": {"by": "root"}}, arguments={"to": "ada"}, schema=schema)
    assert not allows({"when": {"by": "*"}}, arguments={"to": "ada"}, schema=schema)
    assert not denies({"when": {"by": "root"}}, arguments={"to": "ada", "by": "ann"}, schema=schema)
    assert not denies({"when": {"*": "root"}}, arguments={"to": "ada"}, schema=schema)


def test_a_schema_that_branches_without_end_is_not_followed_to_its_end() -> None:
    twice = {f"N{number}": {"anyOf": [{"$ref": f"#/$defs/N{number + 1}"}] * 2} for number in range(40)}
    properties = {"a": {"$ref": "#/$defs/N0"}, "by": {"type": "string", "default": "root"}}
    schema = {"properties": properties, "required": ["a"], "$defs": twice}

    assert denies({"when": {"by": "root"}}, arguments={"a": 1}, schema=schema)
