"""Base classes of all commands: they add the shared options and run the command function with a session."""

import os
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import click
from click import Context, HelpFormatter, Option, Parameter

_SHARED = ("url", "profile", "store", "allow_volatile", "app", "config", "json", "quiet")


class SharedOptions:
    """The values of the options that every command takes."""

    url: str | None = None
    profile: str | None = None
    store: str | None = None
    allow_volatile: bool = False
    app: str | None = None
    config: str | None = None
    json: bool = False
    quiet: bool = False
    acting_as: str | None = None


def _note(name: str) -> Callable[[Context, Parameter, Any], None]:
    """Store a shared option for the session. If it is given twice, the one closest to the command wins."""

    def keep(context: Context, parameter: Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(context.ensure_object(SharedOptions), name, value)

    return keep


def shared_options() -> list[Option]:
    """Return new option objects, because Click does not let two commands share an option."""

    def option(name: str, help: str, **more: Any) -> Option:
        parameter = name.replace("-", "_")
        return Option([f"--{name}"], help=help, expose_value=False, callback=_note(parameter), **more)

    return [
        option("url", "The server to use, such as https://ade.example.org; its token is in ADE_TOKEN.", metavar="URL"),
        option("profile", "A server by its name in the settings (client.profiles).", metavar="NAME"),
        option("store", "The store, such as sqlite:///ade.db; overrides the app and the settings.", metavar="URL"),
        option("allow-volatile", "Accept a Redis server without an append-only file.", is_flag=True),
        option("app", "The app to import, as module:attribute; or set ADE_APP.", metavar="APP"),
        option("config", "A settings file that is read after the usual ones.", type=click.Path(exists=True)),
        option("json", "Write JSON: one document, or one per line for continuous output.", is_flag=True),
        option("quiet", "Print only the requested output.", is_flag=True),
    ]


def is_own(parameter: Parameter) -> bool:
    """Return whether a parameter belongs to its command, rather than to all commands."""
    return parameter.name not in _SHARED and "--help" not in parameter.opts


def _format_shared(command: click.Command, context: Context, formatter: HelpFormatter) -> None:
    """Format the options of the command first, and the shared options separately."""
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


def _on_session(function: Callable[..., Any], reads: bool | Callable[..., bool]) -> Callable[..., Any]:
    """Return a command callback that creates the session, and runs the coroutine if the function returns one."""

    @wraps(function)
    def carry_out(**parameters: Any) -> Any:
        from ade.cli.session import Session  # not loaded for `--help`

        session = Session(click.get_current_context().ensure_object(SharedOptions))
        work = function(session, **parameters)
        if not isinstance(work, Coroutine):
            return work
        only_reads = reads(**parameters) if callable(reads) else reads
        return session.look(work) if only_reads else session.run(work)

    return carry_out


class AdeCommand(click.Command):
    """A command with the shared options. Its function, usually async, takes the session before its own parameters.

    `reads` declares that the command changes nothing: a store in a file is then read without an event loop, because
    loading one would take half of the time. If that depends on the parameters, `reads` is a function of them.
    """

    def __init__(
        self,
        name: str | None,
        *,
        callback: Callable[..., Any],
        reads: bool | Callable[..., bool] = False,
        **attributes: Any,
    ) -> None:
        super().__init__(name, callback=_on_session(callback, reads), **attributes)
        self.params += shared_options()

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        _format_shared(self, ctx, formatter)


class AdeGroup(click.Group):
    """A group of AdeCommands that also takes the shared options. `bare` is the command it runs without arguments."""

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


def command(name: str, *, reads: bool | Callable[..., bool] = False) -> Callable[[Callable[..., Any]], AdeCommand]:
    """Turn a function into a command; its docstring is the help. For `reads`, see AdeCommand."""
    return click.command(name, cls=AdeCommand, reads=reads)


def group(name: str, *, bare: str | None = None) -> Callable[[Callable[..., Any]], AdeGroup]:
    """Turn a function into a command group; its docstring is the help."""
    return click.group(name, cls=AdeGroup, bare=bare)


def is_debugging() -> bool:
    """Return whether ADE_DEBUG is set."""
    return os.environ.get("ADE_DEBUG", "") not in ("", "0")
