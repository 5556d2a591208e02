"""Command lines and environments of agent programs, built from a profile and an assignment.

No value can be parsed as a flag, and nothing passes through a shell.
"""

import json
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ade.agents.profiles import Choice, Profile, PromptChannel, Words
from ade.agents.runs.failures import RunFailure
from ade.agents.runs.outcome import RunReport
from ade.errors import InvalidArguments

LONGEST_ARGUMENT = 100_000  # bytes; Linux allows 131,072 for one
_PLACE = re.compile(r"\{(\w+)\}")
SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+\[\]-]{0,199}")
_IDS = ("session_id", "agent_id", "conversation_id", "model")


class RunAssignment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run must do. IDs of an earlier run make it resume there."""

    prompt: str
    model: str | None = None
    system_prompt: str | None = None
    max_turns: int | None = None
    max_cost_usd: float | None = None
    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None


class CommandLine(Struct, frozen=True):
    """A command line; without `stdin`, the program's stdin is closed."""

    argv: Words
    stdin: bytes | None


def command_of(profile: Profile, assignment: RunAssignment, hook: str | None = None) -> CommandLine:
    """Return the command line for this assignment; `hook` is the shell command that checks tool calls.

    Raises InvalidArguments for values that a command line cannot contain.
    """
    values = _values(profile, assignment)
    takes_system_prompt = any("{system_prompt}" in word for word in _all_words(profile))
    if "system_prompt" in values and not takes_system_prompt:
        values["prompt"] = f"{values['system_prompt']}\n\n{values['prompt']}"
    is_argument = profile.prompt_by is PromptChannel.ARGUMENT and _fits(values["prompt"])
    resumed = _chosen(profile.resume, values)
    choices = profile.options if resumed else (*profile.fresh, *profile.options)
    argv = (
        *profile.command,
        *(word for choice in choices for word in _chosen(choice, values)),
        *profile.permissions,
        *(_hook_words(profile, hook) if profile.is_guarded and hook is not None else ()),
        *resumed,
        *(_filled(profile.prompt_words, values) if is_argument else profile.stdin_words),
    )
    for word in argv:
        if "\0" in word or not _fits(word):
            raise InvalidArguments(f"{word[:40]!r}... cannot be passed to a program: it is too long or contains NUL")
    return CommandLine(argv, None if is_argument else values["prompt"].encode("utf-8", "replace"))


def _values(profile: Profile, assignment: RunAssignment) -> dict[str, str]:
    assigned = {
        key: f"{value:.15g}" if isinstance(value, float) else str(value)
        for key in RunAssignment.__struct_fields__
        if (value := getattr(assignment, key)) is not None and value != ""
    }
    for key in _IDS:
        if key in assigned and not SAFE_ID.fullmatch(assigned[key]):
            raise InvalidArguments(
                f"{key} {assigned[key][:60]!r} is not valid: begin with a letter or digit, then letters, digits, and"
                " any of _ . : @ / + [ ] -, at most 200"
            )
    return {**profile.defaults, "prompt": "", **assigned}


def goes_on_by(profile: Profile) -> frozenset[str]:
    """Return the IDs by which an agent of this profile resumes an earlier run."""
    return frozenset(name for words in profile.resume for word in words for name in _PLACE.findall(word))


def _hook_words(profile: Profile, hook: str) -> Words:
    """Insert the hook command, escaped because it is inside JSON."""
    return tuple(word.replace("{hook}", json.dumps(hook)[1:-1]) for word in profile.hook_words)


def _all_words(profile: Profile) -> Iterable[str]:
    for choice in (*profile.fresh, *profile.options):
        for words in choice:
            yield from words


def _chosen(choice: Choice, values: Mapping[str, str]) -> Words:
    for words in choice:
        if all(name in values for word in words for name in _PLACE.findall(word)):
            return _filled(words, values)
    return ()


def _filled(words: Words, values: Mapping[str, str]) -> Words:
    return tuple(_PLACE.sub(lambda place: values.get(place[1], place[0]), word) for word in words)


def _fits(word: str) -> bool:
    return len(word.encode("utf-8", "replace")) <= LONGEST_ARGUMENT


def environment_of(
    profile: Profile, parent: Mapping[str, str], requested: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the program's environment: only allowed variables of the parent and of the task.

    A task can set only a few: another PATH, proxy, or base URL could send keys to a server of its choice. Raises
    InvalidArguments for the others.
    """
    refused = sorted(name for name in requested or {} if not _is_among(profile.task_environment, name))
    if refused:
        raise InvalidArguments(
            f"a task may not set {', '.join(refused)[:200]} for agents of type {profile.name}; name it in"
            " task_environment of the profile if it should"
        )
    passed = {name: value for name, value in parent.items() if _is_among(profile.environment, name)}
    return {**passed, **(requested or {}), **profile.set_environment}


def _is_among(names: Iterable[str], name: str) -> bool:
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in names)


def fallback_of(
    profile: Profile, assignment: RunAssignment, report: RunReport, *, parent_model: str | None = None
) -> RunAssignment | None:
    """Return a run with another model, if the model was unavailable; None if there is no other.

    It uses a new agent, because the old one is bound to its model. Call this once per task, never for a fallback run.
    """
    model = profile.fallback_model or parent_model
    tried = assignment.model or profile.defaults.get("model")
    if report.failure is not RunFailure.MODEL_UNSUPPORTED or model is None or model == tried:
        return None
    return replace(assignment, model=model, session_id=None, agent_id=None, conversation_id=None)
