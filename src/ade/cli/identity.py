"""The server that a command connects to, and the account that it acts as."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ade.accounts.model import UnknownAccount
from ade.cli.command import SharedOptions
from ade.settings import SettingsError
from ade.settings.sections import ClientSettings

if TYPE_CHECKING:
    from ade.accounts.views import CurrentAccount
    from ade.cli.session import Session
    from ade.client.client import Client


_KNOWN = frozenset({"url", "token_file", "allow_plain"})


class ServerTarget(NamedTuple):
    """The URL and access token of a server."""

    url: str
    token: str | None  # None: use ADE_TOKEN, if it is set
    allow_plain: bool = False  # allow sending the token over plain HTTP to another machine


def server_of(client: ClientSettings, *, prefers_url: bool) -> ServerTarget:
    """Return the server of the profile, unless a URL was also given. Raises SettingsError."""
    if client.profile and not prefers_url:
        return _of_profile(client)
    return ServerTarget(client.url, _token(client.token_file, "client.token_file"), client.allow_plain)


def _of_profile(client: ClientSettings) -> ServerTarget:
    profile: dict[str, Any] | None = client.profiles.get(client.profile)
    name = f"client.profiles.{client.profile}"
    if profile is None:
        known = ", ".join(sorted(client.profiles)) or "none"
        raise SettingsError(
            f"there is no profile {client.profile!r}; the settings have {known}", names=("client.profiles",)
        )
    if unknown := sorted(profile.keys() - _KNOWN):
        raise SettingsError(f"{name} has {unknown[0]!r}, which is unknown; it takes url, token_file and allow_plain")
    url, token_file = profile.get("url"), profile.get("token_file", "")
    if not isinstance(url, str) or not url or not isinstance(token_file, str):
        raise SettingsError(f"{name} needs a url, such as https://ade.example.org, and may have a token_file")
    return ServerTarget(url, _token(token_file, f"{name}.token_file"), profile.get("allow_plain") is True)


def _token(file: str, name: str) -> str | None:
    if not file:
        return None
    try:
        lines = Path(file).expanduser().read_text().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name} = {file!r} cannot be read: {error}") from None
    return lines[0].strip() or None


F = TypeVar("F", bound=Callable[..., Any])


def as_option(command: F) -> F:
    """Add the option --as to a command. `Session.account` is the resulting account."""
    return click.option(
        "--as",
        "acting_as",
        metavar="NAME",
        expose_value=False,
        callback=_keep,
        help="For a local store: the account to act as. Default: ADE_USER, task.author, or your login name.",
    )(command)


def _keep(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.ensure_object(SharedOptions).acting_as = name


async def me(api: "Client") -> "CurrentAccount | None":
    """Return the calling account; None for a user of a local store without an account."""
    try:
        return await api.get_me()
    except UnknownAccount:
        return None


async def account_of(session: "Session", api: "Client") -> str:
    """Return the ID of the acting account; with a server, the owner of the token."""
    return session.account if session.server is None else (await api.get_me()).user.id
