"""Secrets that a program was given must not come back in what it prints."""

import re
from collections.abc import Iterable, Mapping

HIDDEN = "[hidden]"
SHORTEST_SECRET = 6  # shorter ones would hide half of every text
_SECRET_NAME = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY|CREDENTIAL"
    r"|(?:^|_)(?:KEY|PASS|PAT|AUTH|DSN)(?:_|$)|._PWD$"
)
_IN_URL = re.compile(r"://[^/\s:@]*:(?P<password>[^/\s@]+)@")
_LOOKS_SECRET = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,200}|gh[pousr]_[A-Za-z0-9]{20,200}|AIza[A-Za-z0-9_-]{30,60}|AKIA[A-Z0-9]{16}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,200})|(?<=Bearer )[A-Za-z0-9._~+/=-]{16,2000}"
)


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """The values whose names say that nobody may read them, and the passwords in URLs."""
    named = [value for name, value in environment.items() if _SECRET_NAME.search(name.upper())]
    return named + [match["password"] for value in environment.values() for match in _IN_URL.finditer(value)]


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with these, and with what looks like a common access token, hidden."""
    for secret in sorted({each for each in secrets if len(each) >= SHORTEST_SECRET}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _LOOKS_SECRET.sub(HIDDEN, text)
