"""Profiles from settings and from Markdown files: what they become, and how every mistake is named."""

import tomllib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.agents.profile_documents import profile_from_markdown, read_profiles
from ade.agents.profiles import BUILT_IN, PromptChannel, ProtocolName
from ade.agents.runs.command_line import RunAssignment, command_of
from ade.agents.runs.failures import RunFailure
from ade.errors import InvalidProfile

SETTINGS = """
[coder]
base = "claude"
description = "writes code"
model = "opus"
fallback_model = "sonnet"
permissions = ["--dangerously-skip-permissions"]
tools = ["Read", "Edit"]
timeout = "20m"
memory_mb = 2048
environment = ["NPM_TOKEN", "CI_*"]
set = { CI = "1" }

[reviewer]
base = "coder"
permission_mode = "plan"

[linter]
command = ["lint", "--format=json"]
prompt = "argument"
prompt_words = ["--", "{prompt}"]
protocol = "json"
options = [["--model", "{model}"], ["--limit={max_turns}"]]
resume = [["--session={session_id}"], ["--agent", "{agent_id}"]]
exit_codes = { 75 = "rate_limited", 64 = "bad_request" }
rate_limit_marks = ["come back later"]
model_marks = [["no such", "model"]]
"""

MARKDOWN = """\
---
name: code-reviewer
description: "Reviews code: finds bugs"   # for the list
tools: Read, Grep
model: anthropic/claude-sonnet-4-5
skills:
  - testing
  - 'style guide'
memoryBlocks: [human, persona]
permissionMode: plan
mode: stateless
exit_codes:
  75: rate_limited
---

You are a careful reviewer.

- Read first: always.
"""


def test_profiles_of_settings_begin_as_their_base() -> None:
    profiles = read_profiles(tomllib.loads(SETTINGS))

    assert set(profiles) == {*BUILT_IN, "coder", "reviewer", "linter"}
    coder, reviewer = profiles["coder"], profiles["reviewer"]
    assert (coder.protocol, coder.command) == (ProtocolName.CLAUDE, BUILT_IN["claude"].command)
    assert (coder.timeout_ms, coder.memory_mb, coder.fallback_model) == (1_200_000, 2048, "sonnet")
    assert coder.environment[-2:] == ("NPM_TOKEN", "CI_*")
    assert "ANTHROPIC_API_KEY" in coder.environment
    assert reviewer.defaults == {"tools": "Read,Edit", "model": "opus", "permission_mode": "plan"}
    assert reviewer.set_environment == {"CI": "1"}


def test_a_program_that_nobody_knows_is_described_in_full() -> None:
    linter = read_profiles(tomllib.loads(SETTINGS))["linter"]

    assert (linter.prompt_by, linter.protocol) == (PromptChannel.ARGUMENT, ProtocolName.JSON)
    assert linter.exit_codes == {75: RunFailure.RATE_LIMITED, 64: RunFailure.BAD_REQUEST}
    assert command_of(linter, RunAssignment(prompt="-v", model="m", agent_id="a-1")).argv == (
        *("lint", "--format=json", "--model", "m", "--agent", "a-1", "--", "-v"),
    )


def test_a_built_in_profile_may_be_changed_under_its_own_name() -> None:
    data = {"mine": {"base": "claude"}, "claude": {"base": "claude", "model": "haiku"}}

    assert read_profiles(data)["mine"].defaults == {"model": "haiku"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"base": "cloude"}, "agents.x.base is 'cloude'; known are claude, codex, command"),
        ({}, "agents.x.command is missing"),
        ({"base": "x"}, "agents.x.base is 'x'; known are"),
        ({"comand": ["a"], "base": "claude"}, "agents.x.comand is unknown; did you mean command?"),
        ({"command": []}, "agents.x.command must be a list of texts"),
        ({"command": ["a", "{prompt}"]}, "use options for {...}"),
        ({"command": ["a"], "options": [["{colour}"]]}, "agents.x.{colour} is unknown; placeholders are agent_id"),
        ({"command": ["a"], "options": [["a", 3]]}, "agents.x.options.1 must be text"),
        ({"command": ["a"], "prompt": "telepathy"}, 'agents.x.prompt must be "stdin" or "argument"'),
        ({"command": ["a"], "prompt_words": ["-p"]}, "prompt_words must have {prompt} in it"),
        (
            {"command": ["a"], "model": "m"},
            "agents.x.model is not supported by a; add its flag to options, with {model}",
        ),
        ({"base": "codex", "skills": "s"}, "agents.x.skills is not supported by codex"),
        ({"base": "claude", "timeout": 20}, 'agents.x.timeout must be a time such as "90s"'),
        ({"base": "claude", "memory_mb": 0}, "agents.x.memory_mb must be a whole number"),
        ({"base": "claude", "exit_codes": {"300": "reported"}}, "exit_codes.300 must be an exit code from 1 to 255"),
        ({"base": "claude", "exit_codes": {"3": "sad"}}, "exit_codes.3 must be "),
        ({"base": "claude", "environment": ["A=B"]}, "must name variables, such as API_KEY or MY_*, not 'A=B'"),
        ({"base": "claude", "set": {"A*": "b"}}, "agents.x.set.A* must be the name of a variable"),
        ({"base": "claude", "system_prompt": ""}, "agents.x.system_prompt must be text"),
        ([], "agents.x must be a table"),
    ],
)
def test_a_mistake_in_the_settings_is_named(table: object, said: str) -> None:
    with pytest.raises(InvalidProfile) as error:
        read_profiles({"x": table})

    assert said in error.value.detail


def test_names_and_rings_are_checked() -> None:
    with pytest.raises(InvalidProfile, match="must consist of lower-case letters, digits and '-'"):
        read_profiles({"My Agent": {"base": "claude"}})
    with pytest.raises(InvalidProfile, match="forms a cycle: a -> b -> a"):
        read_profiles({"a": {"base": "b"}, "b": {"base": "a"}})


def test_a_markdown_file_is_an_agent_type_of_its_own() -> None:
    profile = profile_from_markdown(MARKDOWN)

    assert (profile.name, profile.description) == ("code-reviewer", "Reviews code: finds bugs")
    assert profile.exit_codes == {75: RunFailure.RATE_LIMITED}
    assert command_of(profile, RunAssignment(prompt="go")).argv == (
        *("letta", "-p", "--output-format", "stream-json", "--new-agent"),
        "--system-custom=You are a careful reviewer.\n\n- Read first: always.",
        *("--tags", "type:code-reviewer", "--no-memfs", "--model", "anthropic/claude-sonnet-4-5"),
        *("--tools", "Read,Grep", "--init-blocks", "human,persona", "--pre-load-skills", "testing,style guide"),
        *("--permission-mode", "plan"),
    )


def test_a_markdown_file_may_name_another_base_and_all_tools() -> None:
    profile = profile_from_markdown("---\nname: a\nbase: claude\ntools: all\nmax_turns: 7\n---\n")

    assert profile.defaults == {"max_turns": "7"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\n", "x.md:1: the first line must be ---"),
        ("---\nname: a\n", "x.md: the front matter never ends"),
        ("---\ndescription: b\n---\n", "x.md: name is missing"),
        ("---\nname: a\njust words\n---\n", "x.md:3: must be `name: value`"),
        ("---\nname: a\nname: b\n---\n", "x.md:3: name is given twice"),
        ("---\nname: a\npermissionMode: x\npermission_mode: y\n---\n", "x.md: permission_mode is given twice"),
        ("---\nname: a\nmodel:\n---\n", "x.md:3: has no value"),
        ("---\nname: a\n  model: b\n---\n", "x.md:3: is indented more"),
        ("---\nname: a\nset:\n\tA: b\n---\n", "x.md:4: is indented with a tab"),
        ("---\nname: a\nmodel: *anchor\n---\n", "x.md:3: '*anchor' must be quoted"),
        ('---\nname: a\nmodel: "b\n---\n', "x.md:3: '\"b' must end with the quote"),
        ("---\nname: a\ntools: [b\n---\n", "x.md:3: '[b' is neither a list"),
        ("---\nname: a\ntools:\n  -b\n---\n", "x.md:4: must be `- ` and then a value"),
        ("---\nname: a\nset:\n  b:\n    c: d\n---\n", "x.md:5: is a table within a table"),
        ("---\nname: a\nmood: good\n---\n", "x.md.mood is unknown"),
        ("---\nname: " + "a" * 10_000 + "\n---\n", "x.md:2: is longer than 10,000 characters"),
        ("---\nname: A\n---\n", "x.md.name 'A' must consist of lower-case letters"),
        ("---\nname: a\nsystem_prompt: b\n---\nc", "x.md: the system prompt is also below the front matter"),
        ("---\n" + "#" * 1_000_001, "x.md is longer than 1,000,000 characters"),
    ],
)
def test_a_mistake_in_a_markdown_file_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidProfile) as error:
        profile_from_markdown(text, place="x.md")

    assert said in error.value.detail


def test_text_may_stand_on_many_lines_and_lists_may_be_json() -> None:
    head = ["name: a", "base: command", "description: >", "  one", "  two", 'command: ["x", "a, b"]']
    lines = ["set:", "  A: 'it''s'", "  B: |", "    1", "    2"]
    profile = profile_from_markdown("\r\n".join(("---", *head, *lines, "---", "")))

    assert (profile.description, profile.command) == ("one two", ("x", "a, b"))
    assert profile.set_environment == {"A": "it's", "B": "1\n2"}
    with pytest.raises(InvalidProfile, match="set must be a table"):
        profile_from_markdown("\n".join(("---", *head, "set:", "- b", "---")))


@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(["---", "name: a", "  x:", "- ", "x: [", 'y: "', "|", "\t", "z: >", "a: b"]), max_size=12
    ).map("\n".join)
)
def test_no_text_makes_the_reader_raise_anything_else(text: str) -> None:
    for read in (text, f"---\n{text}\n---\n"):
        with suppress(InvalidProfile):
            assert profile_from_markdown(read).name
