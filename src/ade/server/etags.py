"""Entity tags and preconditions (RFC 9110, 8.8 and 13): nobody writes over what he has not seen.

Records with a version have it as a strong tag, `"12"`; lists and figures have a weak one of their content. How to wire
it: a GET sends `ETag` and answers 304 if `is_not_modified`; a write calls `check_write` with what it has read, and then
commits guarded by that same version, so that nothing slips in between: a StaleWrite of a request that gave If-Match is
answered as `stale_precondition`.
"""

import hashlib
import re
from collections.abc import Sequence

from msgspec import Struct

from ade.server.problems import HttpFault, RequestRefused

_TAG = re.compile(r'[ \t]*+(?:(W/)?"([\x21\x23-\x7e\x80-\xff]*+)")?[ \t]*+(?:,|\Z)')
_LONGEST_HEADER, _MOST_TAGS = 4_096, 100


class EntityTag(Struct, frozen=True):
    value: str
    is_weak: bool = False

    def __str__(self) -> str:
        return f'{"W/" if self.is_weak else ""}"{self.value}"'

    def is_same(self, other: "EntityTag") -> bool:
        """The strong comparison: byte for byte the same thing."""
        return not self.is_weak and not other.is_weak and self.value == other.value

    def is_alike(self, other: "EntityTag") -> bool:
        """The weak comparison: as good as the same, to be shown."""
        return self.value == other.value


class AnyTag(Struct, frozen=True):
    """`*`: whatever there is."""


ANY = AnyTag()
Tags = Sequence[EntityTag] | AnyTag


def tag_of_version(version: int) -> EntityTag:
    return EntityTag(str(version))


def tag_of_content(content: bytes) -> EntityTag:
    return EntityTag(hashlib.sha256(content).hexdigest()[:24], is_weak=True)


def read_tags(header: str, name: str = "If-Match") -> Tags:
    """All tags of a header. Raises RequestRefused (400) for what is none."""
    text = header.strip(" \t")
    if text == "*":
        return ANY
    tags: list[EntityTag] = []
    at = 0
    while len(text) <= _LONGEST_HEADER and at < len(text) and (match := _TAG.match(text, at)):
        at = match.end()
        if match[2] is not None:  # lists may have empty places
            tags.append(EntityTag(match[2], is_weak=match[1] is not None))
    if at < len(text) or not tags or len(tags) > _MOST_TAGS:
        raise RequestRefused(
            HttpFault.BAD_REQUEST, f'{name} is * or a list of tags in double quotes, as ETag had them: {name}: "12"'
        )
    return tags


def check_write(
    current: int | None, *, if_match: str | None = None, if_none_match: str | None = None, is_required: bool = False
) -> None:
    """Whether this record, of this version or not there (None), is the one that is meant.

    Raises RequestRefused: 428 if the request must say which and does not, 412 if it is another. A record that must
    exist and does not is a 404 before this, unless the request has said that it does.
    """
    if if_match is None and if_none_match is None and is_required:
        raise RequestRefused(HttpFault.PRECONDITION_REQUIRED)
    tag = None if current is None else tag_of_version(current)
    if if_match is not None and not _matches_strongly(read_tags(if_match), tag):
        raise stale_precondition(current)
    if if_none_match is not None and tag is not None and _is_known(read_tags(if_none_match, "If-None-Match"), tag):
        raise stale_precondition(current)


def stale_precondition(current: int | None) -> RequestRefused:
    if current is None:
        return RequestRefused(HttpFault.PRECONDITION_FAILED, "there is no such record, or not any more")
    tag = str(tag_of_version(current))
    return RequestRefused(
        HttpFault.PRECONDITION_FAILED, f"the record is of version {tag} now; read it again and decide again", etag=tag
    )


def is_not_modified(tag: EntityTag, if_none_match: str | None) -> bool:
    """Whether a GET or HEAD may be answered with 304 and no body."""
    return if_none_match is not None and _is_known(read_tags(if_none_match, "If-None-Match"), tag)


def _matches_strongly(wanted: Tags, tag: EntityTag | None) -> bool:
    if tag is None:
        return False
    return isinstance(wanted, AnyTag) or any(each.is_same(tag) for each in wanted)


def _is_known(known: Tags, tag: EntityTag) -> bool:
    return isinstance(known, AnyTag) or any(each.is_alike(tag) for each in known)


# `Prefer: wait=30, respond-async` (RFC 7240): how long somebody likes to wait for an answer.
#
# How it is used: `preference = read_prefer(", ".join(all Prefer headers))`; a route that can wait does so for
# `wait_s` seconds, sends `Preference-Applied` if there is `applied`, and `Vary: Prefer`. `?wait=30` is read by
# `read_wait`, which is strict, because a parameter is no wish.


LONGEST_WAIT_S = 60
_LONGEST_HEADER_PREFER = 2_000
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
    at, text = 0, (header or "")[:_LONGEST_HEADER_PREFER]
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
    raise RequestRefused(HttpFault.BAD_REQUEST, f"wait is a whole number of seconds from 0 to {longest_s}")
