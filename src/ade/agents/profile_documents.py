"""Readers for agent profiles: settings tables, and Markdown files with front matter."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ade.agents.profiles import BUILT_IN, NAME, VALUES, Choice, Profile, PromptChannel, ProtocolName, Words
from ade.agents.runs.failures import RunFailure
from ade.approvals.errors import InvalidRulebook
from ade.approvals.rulebook_document import TableReader
from ade.errors import InvalidProfile

# Markdown with front matter: a strict subset of YAML.
#
# Between two `---` lines are `name: value` pairs. A value is a string, quoted or not; an integer; `true` or `false`; a
# list, as `[one, two]`, as `- one` on separate lines, or as JSON; a table, as indented pairs or as JSON; or a block
# string on indented lines after `|` (lines kept) or `>` (folded into one). `#` starts a comment.


LONGEST_FILE = 1_000_000  # characters
LONGEST_LINE = 10_000  # of the front matter
FENCE = "---"
_PAIR = re.compile(r"(?P<name>\"[^\"]*\"|'[^']*'|[A-Za-z0-9_][A-Za-z0-9_.-]{0,99})\s*:(?:\s+(?P<value>.*))?")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,15})")
_FOREIGN = ("&", "*", "!", "%", "@", "`", "?")  # YAML syntax that this parser does not support
_BLOCKS = ("|", ">", "|-", ">-")


class MarkdownDocument(NamedTuple):
    """The front matter and the text below it."""

    head: dict[str, object]
    body: str


class _FrontMatterLine(NamedTuple):
    number: int
    indent: int
    text: str


def read_markdown(text: str, place: str) -> MarkdownDocument:
    """Parse the front matter and the text below it. Raises InvalidProfile, which names file and line."""
    if len(text) > LONGEST_FILE:
        raise InvalidProfile(f"{place} is longer than {LONGEST_FILE:,} characters; make it shorter")
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        raise InvalidProfile(f"{place}:1: the first line must be {FENCE}, and a second one must end the front matter")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise InvalidProfile(f"{place}: the front matter never ends; write {FENCE} on a line of its own below it")
    for number, line in enumerate(lines[1:end], 2):
        if len(line) > LONGEST_LINE:
            raise InvalidProfile(
                f"{place}:{number}: is longer than {LONGEST_LINE:,} characters; write it below {FENCE}"
            )
    return MarkdownDocument(_FrontMatterParser(lines[1:end], place).table(), "\n".join(lines[end + 1 :]).strip())


class _FrontMatterParser:
    """Parses the lines in a single pass."""

    def __init__(self, lines: Sequence[str], place: str) -> None:
        self._place = place
        self._raw = lines
        self._lines = [_FrontMatterLine(number, *_split(line)) for number, line in enumerate(lines, 2)]
        self._at = 0

    def _wrong(self, line: _FrontMatterLine, what: str) -> InvalidProfile:
        return InvalidProfile(f"{self._place}:{line.number}: {what}")

    def _next(self) -> _FrontMatterLine | None:
        """Return the next line that is neither blank nor a comment."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.text and not line.text.startswith("#"):
                return line
            self._at += 1
        return None

    def table(self, indent: int = 0) -> dict[str, object]:
        found: dict[str, object] = {}
        while (line := self._next()) is not None and line.indent >= indent:
            if line.indent > indent:
                raise self._wrong(line, "is indented more than the lines it belongs to")
            if "\t" in self._raw[line.number - 2][: line.indent]:
                raise self._wrong(line, "is indented with a tab; use spaces")
            pair = _PAIR.fullmatch(line.text)
            if pair is None:
                raise self._wrong(line, f"must be `name: value`, not {line.text[:60]!r}")
            name = pair["name"].strip("\"'")
            if name in found:
                raise self._wrong(line, f"{name} is given twice")
            self._at += 1
            found[name] = self._value(line, (pair["value"] or "").strip())
        return found

    def _value(self, line: _FrontMatterLine, text: str) -> object:
        bare = _without_comment(text)
        if bare in _BLOCKS:
            return self._block(line, is_folded=bare.startswith(">"))
        if bare:
            return self._scalar_or_flow(line, text)
        following = self._next()
        if following is not None and following.text.startswith("-") and following.indent >= line.indent:
            return self._list(following.indent)
        if following is not None and following.indent > line.indent:
            if line.indent:
                raise self._wrong(following, "is a table within a table within a table; write it as JSON")
            return self.table(following.indent)
        raise self._wrong(line, "has no value; leave the line out, or write one")

    def _block(self, line: _FrontMatterLine, *, is_folded: bool) -> str:
        texts: list[str] = []
        while self._at < len(self._lines):
            following = self._lines[self._at]
            if following.text and following.indent <= line.indent:
                break
            texts.append(self._raw[self._at])
            self._at += 1
        margin = min((len(text) - len(text.lstrip()) for text in texts if text.strip()), default=0)
        plain = [text[margin:].rstrip() for text in texts]
        return (" " if is_folded else "\n").join(plain).strip()

    def _list(self, indent: int) -> list[object]:
        items: list[object] = []
        while (line := self._next()) is not None and line.indent == indent and line.text.startswith("-"):
            text = line.text[1:].strip()
            if not line.text.startswith("- ") or not text:
                raise self._wrong(line, "must be `- ` and then a value")
            self._at += 1
            items.append(self._scalar_or_flow(line, text))
        return items

    def _scalar_or_flow(self, line: _FrontMatterLine, text: str) -> object:
        if text.startswith(("[", "{")):
            return self._flow(line, _without_comment(text))
        return self._scalar(line, text)

    def _flow(self, line: _FrontMatterLine, text: str) -> object:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            inner = text[1:-1]
            if not (text.startswith("[") and text.endswith("]")) or any(char in inner for char in "[]{}\"'"):
                raise self._wrong(line, f"{text[:60]!r} is neither a list such as [one, two] nor JSON") from None
            return [self._scalar(line, part.strip()) for part in inner.split(",") if part.strip()]

    def _scalar(self, line: _FrontMatterLine, text: str) -> str | int | bool:
        if text[0] in "\"'":
            return self._quoted(line, text)
        plain = _without_comment(text)
        if plain in ("true", "false"):
            return plain == "true"
        if _NUMBER.fullmatch(plain):
            return int(plain)
        if plain.startswith(_FOREIGN):
            raise self._wrong(line, f"{plain[:60]!r} must be quoted because of its first character")
        return plain

    def _quoted(self, line: _FrontMatterLine, text: str) -> str:
        quote = text[0]
        end = text.find(quote, 1)
        while end > 0 and ((quote == '"' and _is_escaped(text, end)) or text[end : end + 2] == "''"):
            end = text.find(quote, end + (1 if quote == '"' else 2))
        if end < 0 or _without_comment(text[end + 1 :]):
            raise self._wrong(line, f"{text[:60]!r} must end with the quote that it begins with")
        if quote == "'":
            return text[1:end].replace("''", "'")
        try:
            return str(json.loads(text[: end + 1]))
        except ValueError:
            raise self._wrong(line, f"{text[:60]!r} is not valid text in double quotes; single ones keep all") from None


def _split(line: str) -> tuple[int, str]:
    text = line.strip()
    return len(line) - len(line.lstrip()), text


def _without_comment(text: str) -> str:
    return _COMMENT.sub("", text).strip()


def _is_escaped(text: str, at: int) -> bool:
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


LONGEST_SYSTEM_PROMPT = 90_000  # characters; it must fit in one command-line argument
_LONGEST_TIMEOUT_MS = 7 * 86_400_000
_MOST_MEMORY_MB = 1_048_576
_PLACE = re.compile(r"\{(\w*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}\*?")
_EXIT_CODE = re.compile(r"[1-9][0-9]{0,2}")
_COMMAS = re.compile(r"\s*,\s*")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LISTS = ("tools", "skills", "memory_blocks")  # list values; programs expect them comma-separated
_FLAGGED = (*_LISTS, "permission_mode", "model")  # values that have no effect unless the program has a flag for them


def read_profiles(data: object, place: str = "agents") -> dict[str, Profile]:
    """Return the built-in profiles and those of a table (name -> table). Raises InvalidProfile.

    `base` names the profile to inherit from: a built-in one, even of the same name, or another one of the table.
    """
    try:
        tables = {name: TableReader(value, f"{place}.{name}") for name, value in TableReader(data, place).items()}
        found = dict(BUILT_IN)
        for name in tables:
            _resolve(name, tables, found, ())
    except InvalidRulebook as error:
        raise InvalidProfile(error.detail) from None
    return found


def profile_from_markdown(
    text: str, known: Mapping[str, Profile] = BUILT_IN, *, base: str = "letta", place: str = "agent.md"
) -> Profile:
    """Parse a profile from a Markdown file. The front matter has the names of a settings table, plus `name`. The text
    below it is the system prompt. Names in camelCase are accepted too: `permissionMode`, `memoryBlocks`.
    """
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
        raise InvalidProfile(f"{place}: the system prompt is also below the front matter; remove one of them")
    try:
        table = TableReader({"base": base, **renamed, **({"system_prompt": body} if body else {})}, place)
        return _profile(name, table, known)
    except InvalidRulebook as error:
        raise InvalidProfile(error.detail) from None


def _resolve(name: str, tables: Mapping[str, TableReader], found: dict[str, Profile], waiting: tuple[str, ...]) -> None:
    """Resolve bases first, so that the order of the table does not matter."""
    table = tables[name]
    if name in waiting:
        raise table.wrong("base", f"forms a cycle: {' -> '.join((*waiting, name))}")
    base = table.text("base") or "command"
    if base in tables and base != name and (base not in found or found[base] is BUILT_IN.get(base)):
        _resolve(base, tables, found, (*waiting, name))
    known = {**found, name: BUILT_IN[name]} if name in BUILT_IN else found
    if name not in found or found[name] is BUILT_IN.get(name):
        found[name] = _profile(name, table, known)


def _profile(name: str, table: TableReader, known: Mapping[str, Profile]) -> Profile:
    if not NAME.fullmatch(name):
        raise table.wrong(
            "name", f"{name[:120]!r} must consist of lower-case letters, digits and '-', and begin with a letter"
        )
    base = table.text("base") or "command"
    if base not in known:
        raise table.wrong("base", f"is {base!r}; known are {', '.join(sorted(known))}")
    start = known[base]
    if base == "command" and not table.has("command"):
        raise table.wrong("command", 'is missing: say which program to run, such as ["my-agent", "--json"]')
    values: dict[str, Any] = {**_calls(table), **_limits(table), **_marks(table)}
    profile = replace(
        start,
        name=name,
        **{key: value for key, value in values.items() if value is not None},
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
    """Set the `type` value to the profile's own name, if its base has such a value."""
    return {"type": name} if "type" in start.defaults and name != start.name else {}


def _calls(table: TableReader) -> dict[str, object]:
    """Parse how the program is called. Missing values are inherited from the base."""
    return {
        "description": table.text("description"),
        "url": table.text("url"),
        "command": table.texts("command") or None,
        "protocol": table.word("protocol", ProtocolName),
        "prompt_by": table.word("prompt", PromptChannel),
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


def _limits(table: TableReader) -> dict[str, object]:
    memory = table.whole("memory_mb", 0, least=1, most=_MOST_MEMORY_MB)
    return {
        "timeout_ms": table.duration("timeout", most_ms=_LONGEST_TIMEOUT_MS),
        "memory_mb": memory or None,
        "fallback_model": table.text("fallback_model"),
    }


def _marks(table: TableReader) -> dict[str, object]:
    return {
        "rate_limit_marks": table.texts("rate_limit_marks") or None,
        "model_marks": _word_lists(table, "model_marks"),
        "cut_marks": table.texts("cut_marks") or None,
    }


def _word_lists(table: TableReader, key: str) -> Choice | None:
    """Parse a list of lists of words; a flat list counts as a single one."""
    value = table.value(key)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not any(isinstance(each, list | tuple) for each in value):
        return (table.texts(key),)
    parts = TableReader({str(number): words for number, words in enumerate(value, 1)}, f"{table.place}.{key}")
    return tuple(parts.texts(number) for number in parts.names())


def _each_alone(lists: Choice | None) -> tuple[Choice, ...] | None:
    return None if lists is None else tuple((words,) for words in lists)


def _exit_codes(table: TableReader) -> dict[int, RunFailure]:
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


def _variables(table: TableReader, key: str) -> Words:
    names = table.texts(key)
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise table.wrong(key, f"must name variables, such as API_KEY or MY_*, not {name[:60]!r}")
    return names


def _set_variables(table: TableReader) -> dict[str, str]:
    variables = table.table("set")
    for name in variables.names():
        if not _VARIABLE.fullmatch(name) or name.endswith("*"):
            raise variables.wrong(name[:60], "must be the name of a variable")
    return {name: variables.text(name) or "" for name in variables.names()}


def _defaults(table: TableReader) -> dict[str, str]:
    listed = {key: [word for text in table.texts(key) for word in _COMMAS.split(text) if word] for key in _LISTS}
    found = {key: ",".join(words) for key, words in listed.items() if words and words != ["all"]}
    for key in ("model", "permission_mode"):
        if (text := table.text(key)) is not None:
            found[key] = text
    if turns := table.whole("max_turns", 0, least=1, most=1_000_000):
        found["max_turns"] = str(turns)
    table.value("mode")  # read and ignored: a run with IDs resumes from them, any other starts from scratch
    prompt = table.value("system_prompt")
    if prompt is not None:
        if not isinstance(prompt, str) or not prompt.strip() or len(prompt) > LONGEST_SYSTEM_PROMPT:
            raise table.wrong("system_prompt", f"must be text of 1 to {LONGEST_SYSTEM_PROMPT:,} characters")
        found["system_prompt"] = table.whole_text("system_prompt", prompt)
    return found


def _check(profile: Profile, table: TableReader) -> None:
    """Validate what depends on several values."""
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
                raise table.wrong(f"{{{name[:40]}}}", f"is unknown; placeholders are {', '.join(sorted(VALUES))}")
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
            raise table.wrong(
                name, f"is not supported by {profile.command[0]}; add its flag to options, with {{{name}}}"
            )
