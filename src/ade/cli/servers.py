"""Servers that commands talk to, as the settings name them."""

from pathlib import Path
from typing import Any, NamedTuple

from ade.settings import ClientSettings, SettingsError

_KNOWN = frozenset({"url", "token_file", "allow_plain"})


class Server(NamedTuple):
    url: str
    token: str | None  # None: that of ADE_TOKEN, if there is one
    allow_plain: bool = False  # the token may go over plain HTTP to another machine


def server_of(client: ClientSettings, *, prefers_url: bool) -> Server:
    """The one of the profile, unless an address was given beside it. Raises SettingsError."""
    if client.profile and not prefers_url:
        return _of_profile(client)
    return Server(client.url, _token(client.token_file, "client.token_file"), client.allow_plain)


def _of_profile(client: ClientSettings) -> Server:
    profile: dict[str, Any] | None = client.profiles.get(client.profile)
    name = f"client.profiles.{client.profile}"
    if profile is None:
        known = ", ".join(sorted(client.profiles)) or "none"
        raise SettingsError(
            f"there is no profile {client.profile!r}; the settings have {known}", names=("client.profiles",)
        )
    if unknown := sorted(profile.keys() - _KNOWN):
        raise SettingsError(f"{name} has {unknown[0]!r}, which is not known; it takes url, token_file and allow_plain")
    url, token_file = profile.get("url"), profile.get("token_file", "")
    if not isinstance(url, str) or not url or not isinstance(token_file, str):
        raise SettingsError(f"{name} needs a url, such as https://ade.example.org, and may have a token_file")
    return Server(url, _token(token_file, f"{name}.token_file"), profile.get("allow_plain") is True)


def _token(file: str, name: str) -> str | None:
    if not file:
        return None
    try:
        lines = Path(file).expanduser().read_text().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name} = {file!r} cannot be read: {error}") from None
    return lines[0].strip() or None
