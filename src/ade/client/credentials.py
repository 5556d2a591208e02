"""The token that a client shows, and to whom it may."""

import os
import re
from collections.abc import Mapping

from ade.core.accounts.errors import NotAuthenticated
from ade.core.errors import InvalidUrl
from ade.core.web.addresses import is_loopback
from ade.net.pool import Origin

VARIABLE = "ADE_TOKEN"
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


def token_of(given: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The token that was given, or that of the environment. Raises NotAuthenticated for what can be none."""
    token = given if given is not None else environment.get(VARIABLE) or None
    if token is not None and not _TOKEN.fullmatch(token):
        where = "the token" if given is not None else VARIABLE
        raise NotAuthenticated(f"{where} is none: a token has no spaces and no other signs than ASCII has")
    return token


def check_plain(origin: Origin, token: str | None, *, allow_plain: bool) -> None:
    """Raises InvalidUrl before a token goes where others can read it on its way."""
    if token is None or origin.scheme == "https" or allow_plain or is_loopback(origin.host):
        return
    raise InvalidUrl(
        f"the token would go to http://{origin.authority} for all to read on the way; use https://, or a tunnel to"
        " this machine; where you trust the network, say allow_plain=True, or client.allow_plain in the settings"
    )
