"""URLs as they may be shown."""

import re

_SECRETS = (
    re.compile(r"(?<=://)(?P<user>[^/?#:]*):.*@"),  # up to the last @: one in a password may not be escaped
    re.compile(r"(?P<user>[?&]\w*password)=[^&#]*", re.IGNORECASE),
)
_MARKS = (r"\g<user>:***@", r"\g<user>=***")


def without_password(url: str) -> str:
    """The URL with *** in place of the password, if there is one."""
    for secret, mark in zip(_SECRETS, _MARKS, strict=True):
        url = secret.sub(mark, url)
    return url
