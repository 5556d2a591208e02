"""URLs as they may be shown."""

import re

# Up to the last @: one in a password may not be escaped.
_LOGIN = re.compile(r"(?:(?<=://)|(?<=\A//))(?P<user>[^/?#:]*):.*", re.DOTALL)
_OPTION = re.compile(r"(?P<name>[?&]\w*password)=[^&#]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """The URL with *** in place of the password, if there is one."""
    login, at, rest = url.rpartition("@")
    if at:
        url = _LOGIN.sub(r"\g<user>:***", login, count=1) + at + rest
    return _OPTION.sub(r"\g<name>=***", url)
