"""`ade hook`: the answer of a hook where no run of ADE's is around it. Whatever goes wrong is a no."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call

BOOK = """
[[guard]]
tool = "Bash"
when = { command = "*rm *" }
do = "deny"
reason = "removes files"

[[guard]]
tool = "Bash"
when = { command = "*push*" }
do = "demand"
reason = "others see it"
"""


@pytest.fixture
def asked(shop: Call, folder: Path) -> Any:
    """Calls the hook with what a program would tell it."""
    (folder / "rules.toml").write_text(BOOK)
    assert shop("policies", "apply", "rules.toml", "--as", "Ada").code == 0

    def ask(told: object, *options: str) -> Any:
        return shop("hook", "pre-tool-use", *options, stdin=told if isinstance(told, str) else json.dumps(told))

    return ask


def told(command: str, **more: object) -> dict[str, object]:
    return {"tool_name": "Bash", "tool_input": {"command": command}, "hook_event_name": "PreToolUse", **more}


def test_what_no_rule_is_about_is_left_to_the_agents_own_rules(asked: Any) -> None:
    answer = asked(told("ls"))

    assert (answer.code, answer.out) == (0, "")


def test_claude_hears_a_decision_and_its_reason(asked: Any) -> None:
    denied, demanded = asked(told("rm -r x")), asked(told("git push"))

    assert denied.code == demanded.code == 0
    assert json.loads(denied.out)["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "removes files",
    }
    assert json.loads(demanded.out)["hookSpecificOutput"]["permissionDecision"] == "ask"  # whoever sits there


@pytest.mark.parametrize(
    ("more", "options"), [({"turn_id": "t"}, ()), ({"hook_event_name": "BeforeTool"}, ()), ({}, ("--for", "codex"))]
)
def test_others_hear_a_no_as_an_exit_code(asked: Any, more: dict[str, object], options: tuple[str, ...]) -> None:
    for command, reason in (("rm -r x", "removes files"), ("git push", "others see it")):
        answer = asked({**told(command), **more}, *options)

        assert (answer.code, answer.out, answer.err.strip()) == (2, "", reason)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"tool_name": 5, "tool_input": {}}'])
def test_what_cannot_be_read_is_a_no(asked: Any, text: str) -> None:
    answer = asked(text)

    assert answer.code == 2
    assert "so it is denied" in answer.err


def test_a_run_that_cannot_be_asked_is_a_no(asked: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADE_HOOK_LINE", str(folder / "nobody-listens"))

    assert asked(told("ls")).code == 2


def test_a_store_that_is_not_there_is_a_no(asked: Any) -> None:
    assert asked(told("ls"), "--store", "sqlite:///missing.db").code == 2
