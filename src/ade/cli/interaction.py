"""User interaction: confirmations, password prompts, and progress bars."""

import getpass
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ade.accounts.model import NotAuthenticated
from ade.approvals.errors import ReauthenticationNeeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ade.cli.session import Session
    from ade.client.client import Client

F = TypeVar("F", bound=Callable[..., Any])


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


def ask_password(session: "Session", account: str, *, from_stdin: bool, option: str = "--password-stdin") -> str:
    """Return the current password of an account: the first line of stdin, or one prompt. Never an argument."""
    if from_stdin:
        return read_line()
    if not session.is_interactive:
        raise ReauthenticationNeeded(
            f"this requires the password of {account}, and there is no terminal; pass it on stdin with {option}"
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


# Commands that grant access or change notifications. A server accepts them only in a session with a recent password
# check, so such a command signs in for its one change, and out again. Nothing is stored on this machine.


def own_password_option(command: F) -> F:
    """Add the option --own-password-stdin to a command."""
    return click.option(
        "--own-password-stdin",
        is_flag=True,
        help="With a server: read your own password from the first line of stdin. Default: ask for it.",
    )(command)


@asynccontextmanager
async def signed_in_api(session: "Session", *, own_password_stdin: bool, **options: Any) -> "AsyncIterator[Client]":
    """Yield a client that may give access: on a server, signed in with the caller's own password.

    Without a terminal and without the option, only the token is sent, and the server's error names what is missing.
    """
    if own_password_stdin and session.server is None:
        raise click.UsageError("--own-password-stdin is for a server. On a local store no one is asked for a password.")
    async with session.api(**options) as api:
        account = await account_to_sign_in(session, api) if own_password_stdin or session.is_interactive else None
        if account is None:
            yield api
            return
        await api.sign_in(name=account, password=ask_password(session, account, from_stdin=own_password_stdin))
        try:
            yield api
        finally:
            with suppress(NotAuthenticated):  # the change might have ended the session
                await api.sign_out()


async def account_to_sign_in(session: "Session", api: "Client") -> str | None:
    """Return the account of the caller; None for a local store, or a server without authentication."""
    if session.server is None:
        return None
    try:
        me = await api.get_me()
    except NotAuthenticated:  # without a token, the environment says who it is
        return session.account
    return None if me.token is None and me.session is None else me.user.id


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
