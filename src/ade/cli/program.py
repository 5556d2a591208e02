"""`ade` itself: finds the command, runs it, and turns whatever happens into an exit code and a sentence."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click import Context, HelpFormatter

from ade.cli.commands import COMMANDS, SECTIONS
from ade.cli.shared import AdeGroup
from ade.version import VERSION

if TYPE_CHECKING:
    from ade.cli.exit_codes import ExitCode


class LazyGroup(AdeGroup):
    """Knows its commands by name and loads only the one that is used."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            raise click.UsageError(_no_such_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, place.about) for name, place in commands.items()], col_max=14)


def _no_such_command(name: str) -> str:
    from difflib import get_close_matches

    nearest = get_close_matches(name, COMMANDS, n=1)
    hint = f"Did you mean `{nearest[0]}`?" if nearest else "`ade --help` lists them."
    return f"There is no command {name!r}. {hint}"


@click.group("ade", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="ade", message="%(prog)s %(version)s")
def ade() -> None:
    """ADE: a durable work queue for AI agents.

    `ade up --app ade.demo:ade` starts a demo; `ade enqueue --help` tells how to give it work.
    """


def run(arguments: Sequence[str] | None = None) -> "int | ExitCode":
    """Run a command line and answer its exit code. No traceback reaches the user unless ADE_DEBUG is set."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _check_words(given)
        code = _invoke(given)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        from ade.cli.exit_codes import ExitCode

        return ExitCode.BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        from ade.cli.failing import report

        return report(error, as_json="--json" in given)
    return code


def _check_words(arguments: Sequence[str]) -> None:
    """Names, texts and keys are UTF-8 wherever they are kept."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{word[:60]!r} is no valid UTF-8 text.") from None


def _invoke(arguments: list[str]) -> int:
    """What click's own `main` does, without its answers to Ctrl-C and broken pipes."""
    if "_ADE_COMPLETE" in os.environ:  # a shell asks how the line could go on
        ade.main(arguments, prog_name="ade")
    try:
        with ade.make_context("ade", [*arguments]) as context:  # click empties the list it is given
            answer: Any = ade.invoke(context)
    except click.exceptions.Exit as asked:  # by --help and --version
        return asked.exit_code
    return answer if isinstance(answer, int) else 0


def _silence_stdout() -> None:
    """What is still buffered has no reader; without this Python would complain at its end."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
