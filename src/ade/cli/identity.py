"""Who acts: the account that a command is carried out for, and that the event log names."""

import getpass
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ade.cli.session import Session
from ade.core.accounts.users import normal_id

F = TypeVar("F", bound=Callable[..., Any])
VARIABLE = "ADE_USER"


def as_option(command: F) -> F:
    """Give a command the option --as; `acting` tells what was said."""
    return click.option(
        "--as",
        "acting_as",
        metavar="NAME",
        expose_value=False,
        callback=_keep,
        help="The account to act as; otherwise ADE_USER, or your login name.",
    )(command)


def _keep(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.ensure_object(Session).choices.acting_as = name


def acting(session: Session) -> str:
    """The id of the account: as said by --as, else by the environment, else by the system. Raises InvalidAccount."""
    return normal_id(session.choices.acting_as or os.environ.get(VARIABLE) or _login_name())


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return str(os.getuid())
