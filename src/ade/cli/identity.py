"""Who acts: the account that a command is carried out for, and that the event log names."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ade.cli.session import Session
from ade.core.accounts.errors import UnknownAccount
from ade.core.accounts.users import normal_id

if TYPE_CHECKING:
    from ade.client.client import Client
    from ade.insight.accounts import Me

F = TypeVar("F", bound=Callable[..., Any])
VARIABLE = "ADE_USER"
_LOGIN = ("LOGNAME", "USER", "LNAME", "USERNAME")


def as_option(command: F) -> F:
    """Give a command the option --as; `acting` tells what was said."""
    return click.option(
        "--as",
        "acting_as",
        metavar="NAME",
        expose_value=False,
        callback=_keep,
        help="On a store of this machine: the account to act as; otherwise ADE_USER, or your login name.",
    )(command)


def _keep(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.ensure_object(Session).choices.acting_as = name


def acting(session: Session) -> str:
    """The id of the account: as said by --as, else by the environment, else by the system. Raises InvalidAccount."""
    return normal_id(session.choices.acting_as or os.environ.get(VARIABLE) or login_name())


async def me(api: "Client") -> "Me | None":
    """All about who acts; None: somebody at a store of this machine who has no account there."""
    try:
        return await api.get_me()
    except UnknownAccount:
        return None


async def account_of(session: Session, api: "Client") -> str:
    """Who acts: at a server whoever the token belongs to."""
    return acting(session) if session.server is None else (await api.get_me()).user.id


def login_name() -> str:
    """As the system knows the user. What `getpass` looks at first is looked at without it: it is slow to load."""
    if name := next((os.environ[variable] for variable in _LOGIN if os.environ.get(variable)), None):
        return name
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return str(os.getuid())
