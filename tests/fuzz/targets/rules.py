"""Rules that people write down, and what they are held against: rulebooks, patterns, profiles of agents, settings."""

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import msgspec

from ade.agents.profile_documents import profile_from_markdown, read_profiles
from ade.agents.profiles import Profile
from ade.agents.protocols.base import secrets_in, without_secrets
from ade.agents.runs.command_line import RunAssignment, command_of
from ade.approvals.digest import MOST_EXACT, canonical, read_preview
from ade.approvals.errors import InvalidRulebook, InvalidSubject
from ade.approvals.guard import GuardCase, GuardOccasion, rule_on
from ade.approvals.rulebook_document import as_document, read_rulebook
from ade.common.patterns import folded, parts_of, path_pattern, readings, text_pattern
from ade.common.text import HIDDEN
from ade.errors import InvalidArguments, InvalidProfile
from ade.settings import SettingsError, load
from tests.fuzz.table import let, target, text_of

_RULES = {
    "criticality": {"db:*": 80},
    "guard": [
        {"do": "deny", "tool": "Bash", "when": {"command": ["*rm -rf*", 5], "a": {"b": True}}, "reason": "no"},
        {"do": "demand", "paths": ["/etc/**", "*.env"], "policy": "two", "reason": "look", "at": ["tool"]},
        {"do": "allow", "name": "mail.*", "tags": ["x"], "from_score": 10.5},
    ],
    "policy": [
        {
            "id": "two",
            "names": ["mail.*"],
            "from_level": "high",
            "rules": [{"needed": 2, "roles": ["approver"]}, {"users": ["ann"]}],
            "steps": [{"after": "1h", "roles": ["admin"]}],
            "recheck": "roles",
            "valid_for": "1h30m",
            "expires_after": "1d",
        }
    ],
}


def _json_of(data: bytes) -> object:
    return let(lambda: json.loads(data), ValueError, RecursionError)


@target(
    "approvals.rulebook_document",
    "approvals.rulebook_document",
    seeds=lambda: [json.dumps(_RULES).encode(), *(json.dumps({key: _RULES[key]}).encode() for key in _RULES)],
    words=[
        '"guard":',
        '"policy":',
        '"do":',
        '"deny"',
        '"when":',
        '"paths":',
        '"valid_for": "',
        '"step":',
        '"*"',
        "1e999",
    ],
)
def rulebooks(data: bytes) -> None:
    """A rulebook that is taken can be written down, and means the same."""
    given = _json_of(data)
    book = let(lambda: read_rulebook(given), InvalidRulebook)
    if book is None:
        return
    document = json.loads(msgspec.json.encode(as_document(book)))
    assert read_rulebook(document) == book
    for arguments in ({"command": "rm  -rf /"}, {"path": ["/etc/passwd", {"a": 1.5}]}):
        for occasion in GuardOccasion:
            ruling = rule_on(book, GuardCase(name="mail.send", tool="Bash", arguments=arguments, tags=["x"]), occasion)
            assert "could not be evaluated" not in ruling.reason


@target(
    "common.patterns",
    seeds=[
        "*rm -rf*\nrm   -RF /",
        "/etc/**/*.env\n/etc/a/../b/.env",
        "?é*\ne\u200b\u0301x",
        "a*b*c\n${IFS}/* x */ab c",
    ],
    words=["*", "**", "?", "/", "..", "\\", "${IFS", "/*", "*/", "\u200b", "\u0301", "ﬁ", "İ", "ß"],
)
def patterns(data: bytes) -> None:
    """They match what a slow and simple matcher does; folding twice is folding once."""
    pattern, _, text = text_of(data).partition("\n")
    seen = readings(text)
    assert seen[0] == folded(text)
    for reading in (*seen, folded(pattern)):
        assert folded(reading) == reading
    short, plain = pattern[:20], folded(text[:60])
    assert text_pattern(short).matches(plain) == _matches(folded(short), plain)
    parts, is_absolute = parts_of(text)
    path_pattern(pattern[:1_000]).matches(parts, is_absolute=is_absolute)
    ruling = rule_on(
        read_rulebook({"guard": [{"do": "deny", "reason": "no", "when": {"*": ["a*b"]}, "paths": ["/etc/**"]}]}),
        GuardCase(name="a", arguments={"text": text, "list": text.split(" ")}),
        GuardOccasion.TOOL,
    )
    assert "could not be evaluated" not in ruling.reason


def _matches(pattern: str, text: str) -> bool:
    reached = {0}
    for char in pattern:
        if char == "*":
            reached = set(range(min(reached), len(text) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(text) and char in ("?", text[at])}
    return len(text) in reached


@target(
    "approvals.digest",
    "approvals.digest",
    seeds=[
        '{"b": [1, 2.5e-7, 1e21, true, null], "a": "é\\n"}',
        '{"changes": [1], "versions": {"a": "1"}}',
        "9007199254740993",
    ],
    words=["1e", "e-7", "0.1", "-0.0", "\\ud800", '{"', "9007199254740991", '"changes":'],
)
def canonical_texts(data: bytes) -> None:
    value = _json_of(data)
    written = let(lambda: canonical(value), InvalidSubject)
    if written is not None:
        again = json.loads(written, parse_int=_number)
        assert canonical(again) == written
        assert again == value
    let(lambda: read_preview(msgspec.Raw(data)), InvalidSubject)


def _number(digits: str) -> int | float:
    """As it was meant: whole numbers beyond 2^53 are none of ours."""
    return int(digits) if len(digits) < 20 and abs(int(digits)) <= MOST_EXACT else float(digits)


_MARKDOWN = """---
name: reviewer
base: letta
description: "Looks at \\u00e9 changes" # as they come
tools: [Read, Grep]
maxTurns: 5
timeout: 10m
exit_codes: {"3": "rate_limited"}
set:
  A_B: one
permissions: |
  --safe
fallback_model: >-
  other
---
Look at it.
"""


@target(
    "agents.profile_documents",
    "agents.profile_documents",
    "agents.runs.command_line",
    seeds=[
        _MARKDOWN,
        _MARKDOWN.replace("Look at it.", ""),
        "---\nname: x\nbase: command\ncommand:\n  - my\n  - '--quiet'\nprompt_words: [--prompt={prompt}]\n---\n",
        '---\nname: x\noptions: [["--a", "{model}"]]\nmodel: m\n---\nbody',
    ],
    words=[
        "---\n",
        "name: ",
        "base: ",
        "- ",
        "|",
        ">",
        "[",
        "{",
        '"',
        "'",
        "#",
        "\\u0000",
        "\\ud800",
        "exit_codes: ",
        "  ",
    ],
)
def profiles(data: bytes) -> None:
    """A profile that is taken can be kept, and makes a command line that a system takes."""
    text = data.decode("utf-8", "replace")  # other files are refused before
    for place in ("letta", "claude"):
        profile = let(lambda: profile_from_markdown(text, base=place), InvalidProfile)  # noqa: B023
        if profile is not None:
            _check_profile(profile)
    known = let(lambda: read_profiles(_json_of(data)), InvalidProfile)
    for profile in (known or {}).values():
        _check_profile(profile)


def _check_profile(profile: Profile) -> None:
    msgspec.json.encode(profile)
    assert all(1 <= code <= 255 for code in profile.exit_codes)
    command = let(lambda: command_of(profile, RunAssignment(prompt="do it", model="m")), InvalidArguments)
    for word in () if command is None else command.argv:
        assert b"\0" not in os.fsencode(word)


@target(
    "agents.protocols.base",
    seeds=[
        "hush-hush\nthe key is hush-hush, sk-abcdefghijklmnop1234 and Bearer abcdefghijklmnop1234",
        "postgres://u:pass99word@h/d\nAKIAABCDEFGHIJKLMNOP ghp_abcdefghijklmnopqrstuv",
    ],
    words=["sk-", "ghp_", "AKIA", "Bearer ", "://u:", "@", "xoxb-", "hush-hush"],
)
def redaction(data: bytes) -> None:
    value, _, text = text_of(data).partition("\n")
    secrets = secrets_in({"API_KEY": value, "URL": value})
    for each in secrets:
        shown = without_secrets(f"{text}{each}{text}", secrets)
        is_told_apart = len(each) >= 6 and not set(each) & set(HIDDEN)
        assert not is_told_apart or each not in shown


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ade-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@target(
    "settings",
    seeds=[
        '[worker]\nlease_s = 30\ncapabilities = ["gpu"]\n[http]\nhost = "::1"\nread_rate = "5/s"\n',
        '[http]\ntrusted_proxies = ["10.0.0.0/8"]\nallowed_hosts = ["*.example.org"]\nauth = "off"\nhost = "0.0.0.0"\n',
        "ADE_WORKER__LEASE_S=5\nADE_HTTP__HOST=a b\nADE_LOCKS__ACQUIRE_RATE=1/0s",
        '[webhooks]\nallowed_networks = ["10.0.0.1/8"]\n[agents.profiles.x]\ncommand = ["a"]\n',
    ],
    words=[
        "[worker]\n",
        "[http]\n",
        "lease_s = ",
        "ADE_",
        "__",
        "= ",
        '"',
        "[",
        "nan",
        "inf",
        "1e400",
        "0x",
        "1979-05-27",
    ],
)
def settings_files(data: bytes) -> None:
    """Settings, or one kind of error, whichever way they come."""
    path = _folder() / "ade.toml"
    path.write_bytes(data)
    let(lambda: load(env={}, files=[path]), SettingsError)
    lines = (line.partition("=") for line in text_of(data).split("\n"))
    environment = {name: value for name, _, value in lines if name}
    let(lambda: load(env=environment, files=[]), SettingsError)
    flags = {name.removeprefix("ADE_").lower().replace("__", "."): value for name, value in environment.items()}
    let(lambda: load(env={}, files=[], flags=flags), SettingsError)
