"""What all commands share: the options that every one takes, and the classes that add them."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click import Context, HelpFormatter, Option, Parameter

from ade.cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])
_SHARED = ("url", "profile", "store", "allow_volatile", "app", "config", "json", "quiet")


def _note(name: str) -> Callable[[Context, Parameter, Any], None]:
    """Keep a shared option for the session; given twice, the one nearest to the command counts."""

    def keep(context: Context, parameter: Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(context.ensure_object(Session).choices, name, value)

    return keep


def shared_options() -> list[Option]:
    """Fresh ones for each command, because click lets no two commands share an option."""

    def option(name: str, help: str, **more: Any) -> Option:
        parameter = name.replace("-", "_")
        return Option([f"--{name}"], help=help, expose_value=False, callback=_note(parameter), **more)

    return [
        option(
            "url", "A server to talk to, such as https://ade.example.org; its token is in ADE_TOKEN.", metavar="URL"
        ),
        option("profile", "A server by its name in the settings (client.profiles).", metavar="NAME"),
        option(
            "store", "Where the records are, such as sqlite:///ade.db; goes before app and settings.", metavar="URL"
        ),
        option("allow-volatile", "Accept a Redis server that keeps no append-only file.", is_flag=True),
        option("app", "The app to import, as module:attribute; ADE_APP says the same.", metavar="APP"),
        option("config", "A settings file that is read after the usual ones.", type=click.Path(exists=True)),
        option("json", "Write JSON: one document, or one per line where output goes on.", is_flag=True),
        option("quiet", "Say nothing beside what was asked for.", is_flag=True),
    ]


def is_own(parameter: Parameter) -> bool:
    """Whether it belongs to its command alone, and not to all of them."""
    return parameter.name not in _SHARED and "--help" not in parameter.opts


def _format_shared(command: click.Command, context: Context, formatter: HelpFormatter) -> None:
    """The options of this command first, those of all commands apart."""
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, Option) else None
        if record is not None:
            (own if is_own(parameter) else shared).append(record)
    for title, records in (("Options", own), ("Options of every command", shared)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


class AdeCommand(click.Command):
    """A command with the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        _format_shared(self, ctx, formatter)


class AdeGroup(click.Group):
    """A group whose commands are AdeCommands; takes the shared options itself too. `bare` is what it does alone."""

    command_class = AdeCommand

    def __init__(self, *args: Any, bare: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **{"invoke_without_command": bare is not None, **kwargs})
        self.bare = bare
        self.params += shared_options()

    def invoke(self, ctx: Context) -> Any:
        answer = super().invoke(ctx)
        if self.bare is None or ctx.invoked_subcommand is not None:
            return answer
        with self.commands[self.bare].make_context(self.bare, [], parent=ctx) as context:
            return context.command.invoke(context)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        _format_shared(self, ctx, formatter)
        self.format_commands(ctx, formatter)


def command(name: str) -> Callable[[F], AdeCommand]:
    """Make a function a command of its own; its docstring is the help."""
    return click.command(name, cls=AdeCommand)


def group(name: str, *, bare: str | None = None) -> Callable[[F], AdeGroup]:
    return click.group(name, cls=AdeGroup, bare=bare)


pass_session = click.make_pass_decorator(Session, ensure=True)


def is_debugging() -> bool:
    return os.environ.get("ADE_DEBUG", "") not in ("", "0")
