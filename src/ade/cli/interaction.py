"""A progress bar on stderr where people watch; elsewhere nothing."""

import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ade.approvals.errors import ReauthenticationNeeded
from ade.cli.session import Session


class ProgressBar:
    """Told how far it is; draws nothing by itself."""

    def __init__(self) -> None:
        self.done = 0
        self.total = 0

    def advance(self, by: int = 1) -> None:
        self.move(self.done + by, self.total)

    def move(self, done: int, total: int) -> None:
        self.done, self.total = done, total


@contextmanager
def progress(session: Session, what: str, total: int = 0) -> Iterator[ProgressBar]:
    """A bar for work of `total` steps; 0 when it is not known yet."""
    if not session.out.shows_progress:
        bar = ProgressBar()
        bar.total = total
        yield bar
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    class DrawnBar(ProgressBar):
        def move(self, done: int, total: int) -> None:
            super().move(done, total)
            drawn.update(line, completed=done, total=total or None)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        line = drawn.add_task(what, total=total or None)
        bar = DrawnBar()
        bar.total = total
        yield bar


# Passwords from people: asked for without showing them, or read from stdin; never an argument.


def ask_password(session: Session, account: str, *, from_stdin: bool) -> str:
    """The password that an account has, asked for once."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not session.is_interactive:
        raise ReauthenticationNeeded(
            f"this takes the password of {account}, and there is nobody to ask; give it on stdin with --password-stdin"
        )
    return getpass.getpass(f"Password of {account}: ", stream=sys.stderr)


def read_password(session: Session, account: str, *, from_stdin: bool) -> str:
    """The first line of stdin, or what somebody has typed twice."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not session.is_interactive:
        raise click.UsageError("There is nobody to ask for the password. Give it on stdin with --password-stdin.")
    password = getpass.getpass(f"Password for {account}: ", stream=sys.stderr)
    if getpass.getpass("The same once more: ", stream=sys.stderr) != password:
        raise click.UsageError("The two passwords are not the same. Nothing was changed.")
    return password


# Ask before something happens to many.


def confirm(session: Session, question: str, *, yes: bool) -> None:
    """Go on only when --yes was given or somebody says so."""
    if yes:
        return
    if not session.is_interactive:
        raise click.UsageError(f"{question} Add --yes to go on.")
    if not click.confirm(question, err=True):
        raise click.Abort
