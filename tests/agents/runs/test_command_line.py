"""Command lines: what each program is called with, and that nothing of an assignment is taken for a flag."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ade.agents.profiles import BUILT_IN, Profile, PromptChannel, ProtocolName
from ade.agents.protocols.base import secrets_in, without_secrets
from ade.agents.runs.command_line import (
    LONGEST_ARGUMENT,
    CommandLine,
    RunAssignment,
    command_of,
    environment_of,
    fallback_of,
)
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.outcome import RunReport
from ade.errors import InvalidArguments


@pytest.mark.parametrize(
    ("program", "assignment", "argv"),
    [
        ("letta", RunAssignment(prompt="p", model="m", max_turns=3), "letta -p --output-format stream-json --new-agent"
         " --system general-purpose --tags type:general-purpose --no-memfs --model m --max-turns 3"),
        ("letta", RunAssignment(prompt="p", model="m", agent_id="a", conversation_id="c"),
         "letta -p --output-format stream-json --conv c"),
        ("letta", RunAssignment(prompt="p", agent_id="a"), "letta -p --output-format stream-json --agent a --new"),
        ("claude", RunAssignment(prompt="p", model="m", max_turns=3, max_cost_usd=0.5, session_id="s"),
         "claude -p --output-format stream-json --verbose --model m --max-turns 3 --max-budget-usd 0.5 --resume=s"),
        ("codex", RunAssignment(prompt="p", model="m", session_id="s"),
         "codex exec --json --skip-git-repo-check --model m resume s -"),
        ("gemini", RunAssignment(prompt="p", session_id="s"), "gemini -o stream-json -r s --prompt=p"),
        ("command", RunAssignment(prompt="p", model="m"), "cat"),
    ],
)  # fmt: skip
def test_each_program_is_called_in_its_own_way(program: str, assignment: RunAssignment, argv: str) -> None:
    expected = None if program == "gemini" else b"p"

    assert command_of(BUILT_IN[program], assignment) == CommandLine(tuple(argv.split()), expected)


def test_a_prompt_that_is_too_long_for_an_argument_goes_by_stdin() -> None:
    prompt = "x" * (LONGEST_ARGUMENT + 1)

    assert command_of(BUILT_IN["gemini"], RunAssignment(prompt=prompt)) == CommandLine(
        ("gemini", "-o", "stream-json"), prompt.encode()
    )


def test_a_system_prompt_without_a_flag_stands_before_the_prompt() -> None:
    assignment = RunAssignment(prompt="go", system_prompt="be kind")

    assert command_of(BUILT_IN["codex"], assignment).stdin == b"be kind\n\ngo"
    assert "--append-system-prompt=be kind" in command_of(BUILT_IN["claude"], assignment).argv


@given(
    prompt=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1),
    program=st.sampled_from(sorted(BUILT_IN)),
)
def test_no_prompt_adds_a_word_to_a_command_line(prompt: str, program: str) -> None:
    usual, command = (command_of(BUILT_IN[program], RunAssignment(prompt=each)) for each in ("p", prompt))

    assert len(command.argv) == len(usual.argv)
    assert command.stdin in (None, prompt.encode())
    assert command.argv[-1] in (usual.argv[-1], f"--prompt={prompt}")


@pytest.mark.parametrize("bad", ["--yolo", "-r", "a b", "a\0b", "a\n", "x" * 201, "{prompt}"])
def test_an_id_or_a_model_that_is_none_is_refused(bad: str) -> None:
    for assignment in (RunAssignment(prompt="p", session_id=bad), RunAssignment(prompt="p", model=bad)):
        with pytest.raises(InvalidArguments, match="is not valid"):
            command_of(BUILT_IN["codex"], assignment)


def test_what_no_argument_can_hold_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="cannot be passed to a program"):
        command_of(BUILT_IN["gemini"], RunAssignment(prompt="a\0b"))
    with pytest.raises(InvalidArguments, match="too long"):
        command_of(BUILT_IN["claude"], RunAssignment(prompt="p", system_prompt="x" * 200_000))


def test_braces_in_a_prompt_stand_for_themselves() -> None:
    profile = Profile(name="a", command=("a",), protocol=ProtocolName.TEXT, prompt_by=PromptChannel.ARGUMENT)

    assert command_of(profile, RunAssignment(prompt="{model} {x}", model="m")).argv == ("a", "{model} {x}")


def test_only_names_that_may_pass_reach_the_program() -> None:
    parent = {"PATH": "/bin", "LC_ALL": "C", "ANTHROPIC_API_KEY": "k", "AWS_SECRET_ACCESS_KEY": "no", "PATHOLOGY": "no"}

    assert environment_of(BUILT_IN["claude"], parent, {"LANG": "de"}) == {
        "PATH": "/bin", "LC_ALL": "C", "ANTHROPIC_API_KEY": "k", "LANG": "de",
    }  # fmt: skip
    assert environment_of(BUILT_IN["letta"], parent)["LETTA_CODE_AGENT_ROLE"] == "subagent"


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LETTA_CODE_AGENT_ROLE", "ANTHROPIC_BASE_URL", "HTTPS_PROXY", "PATH"])
def test_a_task_is_told_what_it_may_not_set(name: str) -> None:
    with pytest.raises(InvalidArguments, match=f"may not set {name} for agents of type claude"):
        environment_of(BUILT_IN["claude"], {name: "the worker's"}, {name: "its own"})


def test_there_is_one_fallback_and_it_goes_to_a_new_agent() -> None:
    refused = RunReport(exit_code=1, failure=RunFailure.MODEL_UNSUPPORTED, error="no")
    assignment = RunAssignment(prompt="p", model="m1", agent_id="a", session_id="s")
    profile = replace(BUILT_IN["letta"], fallback_model="m2")

    assert fallback_of(profile, assignment, refused) == RunAssignment(prompt="p", model="m2")
    assert fallback_of(BUILT_IN["letta"], assignment, refused, parent_model="m3") == RunAssignment(
        prompt="p", model="m3"
    )
    assert fallback_of(BUILT_IN["letta"], assignment, refused) is None
    assert fallback_of(profile, replace(assignment, model="m2"), refused) is None
    assert fallback_of(profile, assignment, replace(refused, failure=RunFailure.REPORTED)) is None


def test_secrets_are_hidden_by_value_and_by_their_looks() -> None:
    secrets = secrets_in({"MY_TOKEN": "long-enough-value", "PATH": "/usr/bin:/bin", "PIN_KEY": "1234"})
    token = "sk-" + "made-up-" * 4  # looks like one and opens nothing
    text = f"long-enough-value 1234 /usr/bin:/bin {token} Bearer abcdefghijklmnop1234"

    assert secrets == ["long-enough-value", "1234"]
    assert without_secrets(text, secrets) == "[hidden] 1234 /usr/bin:/bin [hidden] Bearer [hidden]"
