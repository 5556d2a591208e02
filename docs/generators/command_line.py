"""Blocks about the command line: every command with its options, and every exit code."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import click

import ade as package
from ade.cli.command import is_own, shared_options
from ade.cli.exit_codes import MEANS, ExitCode, exit_code_of
from ade.cli.program import SECTIONS, ade
from ade.errors import AdeError
from docs.generators.tables import table


def commands() -> str:
    """All commands by section, each with its usage, help and own options."""
    root = click.Context(ade, info_name="ade")
    parts = []
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            command = ade.get_command(root, name)
            assert command is not None
            parts += _described(command, click.Context(command, info_name=name, parent=root))
    return "\n\n".join(parts)


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"### `{context.command_path}`"
    yield _prose(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _described(below, click.Context(below, info_name=name, parent=context))
        return
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
    if options := list(_options(command, context)):
        yield table(["option", "what it does"], options)


def _prose(command: click.Command) -> str:
    """The help as Markdown: what click leaves unwrapped is an example."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        "```sh\n" + "\n".join(line[2:] for line in text.splitlines()[1:]) + "\n```" if text.startswith("\b") else text
        for text in paragraphs
    )


def _options(command: click.Command, context: click.Context) -> Iterator[list[str]]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None and is_own(parameter):
            yield [f"`{record[0]}`", record[1]]


def everywhere() -> str:
    """The options that every command takes."""
    context = click.Context(ade, info_name="ade")
    records = [option.get_help_record(context) for option in shared_options()]
    return table(
        ["option", "what it does"], [[f"`{record[0]}`", record[1]] for record in records if record is not None]
    )


def exit_codes() -> str:
    """Every exit code, what it means, and the error codes that lead to it."""
    by_exit: dict[ExitCode, list[str]] = {code: [] for code in ExitCode}
    for error in _all_errors():
        by_exit[exit_code_of(error)].append(error.code)
    return table(
        ["exit code", "meaning", "error codes"],
        [[str(code.value), MEANS[code], ", ".join(f"`{name}`" for name in sorted(by_exit[code]))] for code in ExitCode],
    )


def _all_errors() -> list[type[AdeError]]:
    """All modules are loaded first, so that none is missed."""
    for module in pkgutil.walk_packages(package.__path__, "ade."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def family(error: type[AdeError]) -> list[type[AdeError]]:
        return [error, *(heir for child in error.__subclasses__() for heir in family(child))]

    return [error for error in dict.fromkeys(family(AdeError)) if error.__module__.startswith("ade.")]
