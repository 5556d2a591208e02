"""Commands that pages and messages name can be typed as they stand there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ade.cli.program import ade as program
from tests.architecture.repository import ROOT, SOURCE, shown, written_files

INLINE = re.compile(r"`(?:make run|ade ([a-z][^`\n]*))`")
IN_A_BLOCK = re.compile(r"^\s*(?:\$ )?ade ([a-z][^#\n]*)", re.MULTILINE)
BLOCK = re.compile(r"```(?:sh|bash|console|text)?\n(.*?)```", re.DOTALL)
PAGES = [path for path in written_files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]


def mentioned(path: Path) -> Iterator[str]:
    text = path.read_text()
    if path.suffix == ".md":
        for block in BLOCK.findall(text):
            yield from IN_A_BLOCK.findall(block)
        text = BLOCK.sub("", text)
    else:
        text = re.sub(r"\{[^{}]*\}", "", text)  # what an f-string fills in
    yield from (found for found in INLINE.findall(text) if found)


def mistake(line: str) -> str | None:
    """What is wrong with a command line, as far as its words tell; arguments may be left out."""
    words = shlex.split(re.split(r"\s[|>&;]", line)[0])
    context = click.Context(program, info_name="ade")
    command: click.Command = program
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        below = command.get_command(context, words[0])
        if below is None:
            choices = [word for word in words[0].split("/") if command.get_command(context, word) is None]
            return f"there is no `{context.command_path} {words[0]}`" if choices else None
        context = click.Context(below, info_name=words.pop(0), parent=context)
        command = below
    known = {name for parameter in command.get_params(context) for name in parameter.opts}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
    return f"`{context.command_path}` has no {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_pages_name_commands_that_exist(page: Path) -> None:
    assert [problem for line in mentioned(page) if (problem := mistake(line)) is not None] == []


def test_messages_name_commands_that_exist() -> None:
    lines = [(shown(path), line) for path in sorted(SOURCE.rglob("*.py")) for line in mentioned(path)]
    found = [f"{place}: {problem}" for place, line in lines if (problem := mistake(line)) is not None]

    assert len(lines) > 20
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("tasks --status failed", False),
        ("queues list", False),
        ("queues", False),
        ("logs ID -f", False),
        ("tasks --json | jq .", False),
        ("tasks --state failed", True),
        ("jobs", True),
        ("queues stop default", True),
    ],
)
def test_mistakes_would_be_found(line: str, is_wrong: bool) -> None:
    assert (mistake(line) is not None) == is_wrong


def test_the_pages_do_mention_commands() -> None:
    assert sum(1 for page in PAGES for _ in mentioned(page)) > 50
    assert ROOT / "README.md" in PAGES
