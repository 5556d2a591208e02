"""Error reporting on stderr: an error code, a message, and an exit code."""

import os
import sys
import traceback
from pathlib import PurePath

import click
import msgspec
from click.exceptions import NoArgsIsHelpError

from ade.cli.command import is_debugging
from ade.cli.exit_codes import ExitCode, exit_code_for
from ade.cli.output import printable
from ade.errors import AdeError, QueueFull


class BadUsage(AdeError):
    """The command line is not valid. `--help` after any command shows what it takes."""

    code = "usage"
    exit_code = ExitCode.USAGE


class InternalError(AdeError):
    """A bug in ADE. Run the command again with ADE_DEBUG=1 and report what it shows."""

    code = "internal"
    exit_code = ExitCode.INTERNAL


class CommandInterrupted(AdeError):
    """Interrupted by Ctrl-C."""

    code = "interrupted"
    exit_code = ExitCode.INTERRUPTED


def report(error: BaseException, *, as_json: bool) -> ExitCode:
    """Print an error to stderr and return its exit code."""
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return ExitCode.BROKEN_PIPE
    if is_debugging():
        traceback.print_exception(error)
    if isinstance(error, NoArgsIsHelpError):
        click.echo(error.format_message())
        return ExitCode.USAGE
    shown = _as_ade_error(error)
    click.echo(_as_json(shown) if as_json else _as_text(shown), err=True)
    return exit_code_for(shown)


def _silence_stdout() -> None:
    """Discard buffered output that has no reader; otherwise Python reports an error at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())


def _as_ade_error(error: BaseException) -> AdeError:
    match error:
        case AdeError():
            return error
        case click.UsageError():
            return BadUsage(_usage(error))
        case click.ClickException():
            return BadUsage(error.format_message())
        case KeyboardInterrupt() | click.Abort():
            return CommandInterrupted()
        case _:
            place = _where(error)
            return InternalError(
                f"{type(error).__name__}: {error}{place}. This is a bug in ADE; ADE_DEBUG=1 shows the traceback"
            )


def _usage(error: click.UsageError) -> str:
    """Return Click's message as a sentence, with a pointer to the help."""
    message = error.format_message().rstrip()
    sentence = message if message.endswith((".", "?")) else f"{message}."
    hint = f" `{error.ctx.command_path} --help` shows what it takes." if error.ctx is not None else ""
    return f"{sentence}{hint}"


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({PurePath(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _as_text(error: AdeError) -> str:
    if isinstance(error, CommandInterrupted):
        return "Interrupted."
    label = click.style(f"error[{error.code}]", fg="red", bold=True)
    return f"{label}: {printable(str(error), lines=True)}"


def _as_json(error: AdeError) -> str:
    facts: dict[str, object] = {"code": error.code, "message": str(error)}
    if isinstance(error, QueueFull):
        facts["retry_after"] = error.retry_after
    return msgspec.json.encode({"error": facts}).decode()
