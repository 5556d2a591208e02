"""`Prefer: wait=30, respond-async` (RFC 7240): how long somebody likes to wait for an answer.

How it is used: `preference = read_prefer(", ".join(all Prefer headers))`; a route that can wait does so for `wait_s`
seconds, sends `Preference-Applied` if there is `applied`, and `Vary: Prefer`. `?wait=30` is read by `read_wait`, which
is strict, because a parameter is no wish.
"""

import re

from msgspec import Struct

from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault

LONGEST_WAIT_S = 60
_LONGEST_HEADER = 2_000
# No part of these is ever tried in two ways, so that no header takes long.
_TOKEN, _SPACE = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++", r"[ \t]*+"
_VALUE = rf'(?:{_TOKEN}|"(?:[^"\\]|\\.)*+")'
_PARAMETER = rf"(?:{_TOKEN}{_SPACE}(?:={_SPACE}{_VALUE}{_SPACE})?)?"
_PREFERENCE = re.compile(
    rf"{_SPACE}(?:(?P<name>{_TOKEN}){_SPACE}(?:={_SPACE}(?P<value>{_VALUE}){_SPACE})?(?:;{_SPACE}{_PARAMETER})*+)?"
    r"(?:,|\Z)"
)
_SECONDS = re.compile(r"\d{1,9}", re.ASCII)


class Preference(Struct, frozen=True, kw_only=True):
    wait_s: int | None = None  # never more than LONGEST_WAIT_S
    is_async: bool = False  # answer at once that it was accepted

    @property
    def applied(self) -> str | None:
        """The value of Preference-Applied: what is really done."""
        wait = () if self.wait_s is None else (f"wait={self.wait_s}",)
        return ", ".join((*wait, *(("respond-async",) if self.is_async else ()))) or None


def read_prefer(header: str | None, *, longest_s: int = LONGEST_WAIT_S) -> Preference:
    """What of it is understood; the rest is left aside, as the standard demands. The first of a name counts."""
    named: dict[str, str] = {}
    at, text = 0, (header or "")[:_LONGEST_HEADER]
    while at < len(text) and (match := _PREFERENCE.match(text, at)):
        at = match.end()
        if match["name"] is not None:
            named.setdefault(match["name"].lower(), (match["value"] or "").strip('"'))
    wait = named.get("wait")
    seconds = min(int(wait), longest_s) if wait is not None and _SECONDS.fullmatch(wait) else None
    return Preference(wait_s=seconds, is_async="respond-async" in named)


def read_wait(parameter: str, *, longest_s: int = LONGEST_WAIT_S) -> int:
    """The seconds of `?wait=`. Raises RequestRefused (400)."""
    if _SECONDS.fullmatch(parameter) and int(parameter) <= longest_s:
        return int(parameter)
    raise RequestRefused(Fault.BAD_REQUEST, f"wait is a whole number of seconds from 0 to {longest_s}")
