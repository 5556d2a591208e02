"""User interaction: confirmations, password prompts, and progress bars."""

import getpass
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ade.approvals.errors import ReauthenticationNeeded

if TYPE_CHECKING:
    from ade.cli.session import Session


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end a blocking read immediately. An event loop would notice it only after the read."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ask(question: str) -> None:
    """Ask for confirmation. Raises Abort unless the user confirms."""
    with interruptible():
        if not click.confirm(question, err=True):
            raise click.Abort


def confirm(session: "Session", question: str, *, yes: bool) -> None:
    """Continue only if --yes was given or the user confirms. Raises UsageError if there is no terminal."""
    if yes:
        return
    if not session.is_interactive:
        raise click.UsageError(f"{question} Add --yes to continue.")
    ask(question)


def read_line() -> str:
    """Return the first line of stdin, without its line ending."""
    with interruptible():
        return sys.stdin.readline().rstrip("\r\n")


def ask_password(session: "Session", account: str, *, from_stdin: bool) -> str:
    """Return the current password of an account: the first line of stdin, or one prompt. Never an argument."""
    if from_stdin:
        return read_line()
    if not session.is_interactive:
        raise ReauthenticationNeeded(
            f"this takes the password of {account}, and there is no terminal; pass it on stdin with --password-stdin"
        )
    with interruptible():
        return getpass.getpass(f"Password of {account}: ", stream=sys.stderr)


def read_password(session: "Session", account: str, *, from_stdin: bool) -> str:
    """Return a new password: the first line of stdin, or two matching prompts."""
    if from_stdin:
        return read_line()
    if not session.is_interactive:
        raise click.UsageError("There is no terminal to ask for the password. Pass it on stdin with --password-stdin.")
    with interruptible():
        password = getpass.getpass(f"Password for {account}: ", stream=sys.stderr)
        repeated = getpass.getpass("Repeat the password: ", stream=sys.stderr)
    if repeated != password:
        raise click.UsageError("The two passwords differ. Nothing was changed.")
    return password


class ProgressBar:
    """Tracks progress without drawing it."""

    def __init__(self, total: int = 0) -> None:
        self.done = 0
        self.total = total

    def advance(self, by: int = 1) -> None:
        self.move(self.done + by, self.total)

    def move(self, done: int, total: int) -> None:
        self.done, self.total = done, total


@contextmanager
def progress(session: "Session", what: str, total: int = 0) -> Iterator[ProgressBar]:
    """Show a progress bar on stderr if it is a terminal; a total of 0 is unknown."""
    if not session.out.shows_progress:
        yield ProgressBar(total)
        return
    from ade.cli.terminal import drawn_bar

    with drawn_bar(what, total) as bar:
        yield bar
