"""Profiles from what people write: tables of settings, and Markdown files with front matter."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ade.core.agent_runs.built_in import BUILT_IN
from ade.core.agent_runs.failures import RunFailure
from ade.core.agent_runs.front_matter import read_markdown
from ade.core.agent_runs.profiles import NAME, VALUES, Choice, Profile, PromptBy, ProtocolName, Words
from ade.core.approvals.refusals import InvalidRulebook
from ade.core.approvals.tables import Table
from ade.core.errors import InvalidProfile

LONGEST_SYSTEM_PROMPT = 90_000  # characters; it must fit in one argument
_LONGEST_TIMEOUT_MS = 7 * 86_400_000
_MOST_MEMORY_MB = 1_048_576
_PLACE = re.compile(r"\{(\w*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}\*?")
_EXIT_CODE = re.compile(r"[1-9][0-9]{0,2}")
_COMMAS = re.compile(r"\s*,\s*")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LISTS = ("tools", "skills", "memory_blocks")  # values that are lists; programs want them with commas
_FLAGGED = (*_LISTS, "permission_mode", "model")  # values that mean nothing to a program without a flag for them


def read_profiles(data: object, place: str = "agents") -> dict[str, Profile]:
    """The built-in profiles and those of a table: name -> table. Raises InvalidProfile.

    `base` names the profile that one begins as: a built-in one, also of its own name, or another of the table.
    """
    try:
        tables = {name: Table(value, f"{place}.{name}") for name, value in Table(data, place).items()}
        found = dict(BUILT_IN)
        for name in tables:
            _resolve(name, tables, found, ())
    except InvalidRulebook as error:
        raise InvalidProfile(error.detail) from None
    return found


def profile_from_markdown(
    text: str, known: Mapping[str, Profile] = BUILT_IN, *, base: str = "letta", place: str = "agent.md"
) -> Profile:
    """A profile from a Markdown file. Its front matter has the names of a settings table, and `name`; the text below
    it is the system prompt. Names in camelCase are taken as well: `permissionMode`, `memoryBlocks`."""
    head, body = read_markdown(text, place)
    renamed: dict[str, object] = {}
    for key, value in head.items():
        plain = _HUMP.sub("_", key).lower()
        if plain in renamed:
            raise InvalidProfile(f"{place}: {plain} is given twice")
        renamed[plain] = value
    name = renamed.pop("name", None)
    if not isinstance(name, str):
        raise InvalidProfile(f"{place}: name is missing: write `name: my-agent` in the front matter")
    if body and "system_prompt" in renamed:
        raise InvalidProfile(f"{place}: the system prompt stands below the front matter already; leave one out")
    try:
        table = Table({"base": base, **renamed, **({"system_prompt": body} if body else {})}, place)
        return _profile(name, table, known)
    except InvalidRulebook as error:
        raise InvalidProfile(error.detail) from None


def _resolve(name: str, tables: Mapping[str, Table], found: dict[str, Profile], waiting: tuple[str, ...]) -> None:
    """Bases first, so that the order of the table means nothing."""
    table = tables[name]
    if name in waiting:
        raise table.wrong("base", f"goes round in a ring: {' -> '.join((*waiting, name))}")
    base = table.text("base") or "command"
    if base in tables and base != name and (base not in found or found[base] is BUILT_IN.get(base)):
        _resolve(base, tables, found, (*waiting, name))
    known = {**found, name: BUILT_IN[name]} if name in BUILT_IN else found
    if name not in found or found[name] is BUILT_IN.get(name):
        found[name] = _profile(name, table, known)


def _profile(name: str, table: Table, known: Mapping[str, Profile]) -> Profile:
    if not NAME.fullmatch(name):
        raise table.wrong("name", f"{name[:120]!r} must be small letters, digits and '-', and begin with a letter")
    base = table.text("base") or "command"
    if base not in known:
        raise table.wrong("base", f"is {base!r}; known are {', '.join(sorted(known))}")
    start = known[base]
    if base == "command" and not table.has("command"):
        raise table.wrong("command", 'is missing: say which program to run, such as ["my-agent", "--json"]')
    given: dict[str, Any] = {**_calls(table), **_limits(table), **_marks(table)}
    profile = replace(
        start,
        name=name,
        **{key: value for key, value in given.items() if value is not None},
        exit_codes={**start.exit_codes, **_exit_codes(table)},
        environment=_joined(start.environment, _variables(table, "environment")),
        task_environment=_joined(start.task_environment, _variables(table, "task_environment")),
        set_environment={**start.set_environment, **_set_variables(table)},
        defaults={**start.defaults, **_type(name, start), **_defaults(table)},
    )
    table.read_up()
    _check(profile, table)
    return profile


def _type(name: str, start: Profile) -> dict[str, str]:
    """A type of its own goes by its own name."""
    return {"type": name} if "type" in start.defaults and name != start.name else {}


def _calls(table: Table) -> dict[str, object]:
    """How the program is called. Missing ones stay as the base has them."""
    return {
        "description": table.text("description"),
        "url": table.text("url"),
        "command": table.texts("command") or None,
        "protocol": table.word("protocol", ProtocolName),
        "prompt_by": table.word("prompt", PromptBy),
        "stdin_words": table.texts("stdin_words") or None,
        "prompt_words": table.texts("prompt_words") or None,
        "permissions": table.texts("permissions") or None,
        "hook_words": table.texts("hook_words") or None,
        "is_guarded": table.flag("guard") if table.has("guard") else None,
        "can_defer": table.flag("can_defer") if table.has("can_defer") else None,
        "fresh": _each_alone(_word_lists(table, "fresh")),
        "options": _each_alone(_word_lists(table, "options")),
        "resume": _word_lists(table, "resume"),
    }


def _limits(table: Table) -> dict[str, object]:
    memory = table.whole("memory_mb", 0, least=1, most=_MOST_MEMORY_MB)
    return {
        "timeout_ms": table.duration("timeout", most_ms=_LONGEST_TIMEOUT_MS),
        "memory_mb": memory or None,
        "fallback_model": table.text("fallback_model"),
    }


def _marks(table: Table) -> dict[str, object]:
    return {
        "rate_limit_marks": table.texts("rate_limit_marks") or None,
        "model_marks": _word_lists(table, "model_marks"),
        "cut_marks": table.texts("cut_marks") or None,
    }


def _word_lists(table: Table, key: str) -> Choice | None:
    """A list of lists of words; a plain list is the only one."""
    value = table.value(key)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not any(isinstance(each, list | tuple) for each in value):
        return (table.texts(key),)
    parts = Table({str(number): words for number, words in enumerate(value, 1)}, f"{table.place}.{key}")
    return tuple(parts.texts(number) for number in parts.names())


def _each_alone(lists: Choice | None) -> tuple[Choice, ...] | None:
    return None if lists is None else tuple((words,) for words in lists)


def _exit_codes(table: Table) -> dict[int, RunFailure]:
    codes = table.table("exit_codes")
    found = {}
    for code in codes.names():
        if not _EXIT_CODE.fullmatch(code) or int(code) > 255:
            raise codes.wrong(code[:20], "must be an exit code from 1 to 255")
        failure = codes.word(code, RunFailure)
        if failure is not None:
            found[int(code)] = failure
    return found


def _joined(first: Words, more: Words) -> Words:
    return tuple(dict.fromkeys((*first, *more)))


def _variables(table: Table, key: str) -> Words:
    names = table.texts(key)
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise table.wrong(key, f"must name variables, such as API_KEY or MY_*, not {name[:60]!r}")
    return names


def _set_variables(table: Table) -> dict[str, str]:
    variables = table.table("set")
    for name in variables.names():
        if not _VARIABLE.fullmatch(name) or name.endswith("*"):
            raise variables.wrong(name[:60], "must be the name of a variable")
    return {name: variables.text(name) or "" for name in variables.names()}


def _defaults(table: Table) -> dict[str, str]:
    listed = {key: [word for text in table.texts(key) for word in _COMMAS.split(text) if word] for key in _LISTS}
    found = {key: ",".join(words) for key, words in listed.items() if words and words != ["all"]}
    for key in ("model", "permission_mode"):
        if (text := table.text(key)) is not None:
            found[key] = text
    if turns := table.whole("max_turns", 0, least=1, most=1_000_000):
        found["max_turns"] = str(turns)
    table.value("mode")  # stateful or stateless: every run with ids goes on from them, every other begins anew
    prompt = table.value("system_prompt")
    if prompt is not None:
        if not isinstance(prompt, str) or not prompt.strip() or len(prompt) > LONGEST_SYSTEM_PROMPT:
            raise table.wrong("system_prompt", f"must be text of 1 to {LONGEST_SYSTEM_PROMPT:,} characters")
        found["system_prompt"] = table.whole_text("system_prompt", prompt)
    return found


def _check(profile: Profile, table: Table) -> None:
    """What only shows when all is put together."""
    flags = [words for choice in (*profile.fresh, *profile.options) for words in choice]
    for words in (
        profile.command,
        profile.stdin_words,
        profile.prompt_words,
        profile.permissions,
        *profile.resume,
        *flags,
    ):
        for name in (name for word in words for name in _PLACE.findall(word)):
            if name not in VALUES:
                raise table.wrong(f"{{{name[:40]}}}", f"stands for nothing; known are {', '.join(sorted(VALUES))}")
    for words in (profile.command, profile.stdin_words, profile.permissions):
        if any(_PLACE.search(word) for word in words):
            raise table.wrong("command", "and stdin_words and permissions are taken as they are; use options for {...}")
    if profile.is_guarded and not profile.hook_words:
        raise table.wrong(
            "guard",
            f"cannot be kept: {profile.command[0]} takes no hook on its command line. Name `ade hook pre-tool-use` in"
            " its own hook settings, or say how with hook_words",
        )
    if not any("{prompt}" in word for word in profile.prompt_words):
        raise table.wrong("prompt_words", 'must have {prompt} in it, such as ["--prompt={prompt}"]')
    places = {name for words in flags for word in words for name in _PLACE.findall(word)}
    for name in _FLAGGED:
        if name in profile.defaults and name not in places:
            raise table.wrong(name, f"means nothing to {profile.command[0]}; add its flag to options, with {{{name}}}")
