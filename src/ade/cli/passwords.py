"""Passwords from people: asked for without showing them, or read from stdin; never an argument."""

import getpass
import sys

import click

from ade.cli.session import Session
from ade.core.approvals.refusals import ReauthenticationNeeded


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
