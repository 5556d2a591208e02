"""Entity tags and preconditions (RFC 9110, 8.8 and 13), and the `Prefer` header (RFC 7240).

A record with a version has it as a strong tag, `"12"`. Lists and statistics have a weak tag of their content. A GET
sends `ETag` and returns 304 if `is_not_modified`. A write calls `check_write` with the version it read, and then
commits guarded by that same version, so no concurrent write is lost. If a request with If-Match gets a StaleWrite, it
returns 412.
"""

import hashlib
import re
from collections.abc import Sequence

from msgspec import Struct

from ade.server.problems import HttpFault, RequestRefused

_TAG = re.compile(r'[ \t]*+(?:(W/)?"([\x21\x23-\x7e\x80-\xff]*+)")?[ \t]*+(?:,|\Z)')
_LONGEST_HEADER, _MOST_TAGS = 4_096, 100


class EntityTag(Struct, frozen=True):
    """One entity tag, strong or weak."""

    value: str
    is_weak: bool = False

    def __str__(self) -> str:
        return f'{"W/" if self.is_weak else ""}"{self.value}"'

    def is_same(self, other: "EntityTag") -> bool:
        """Strong comparison: byte for byte the same."""
        return not self.is_weak and not other.is_weak and self.value == other.value

    def is_alike(self, other: "EntityTag") -> bool:
        """Weak comparison: equivalent for display."""
        return self.value == other.value


class AnyTag(Struct, frozen=True):
    """`*`: matches any version."""


ANY = AnyTag()
Tags = Sequence[EntityTag] | AnyTag


def tag_of_version(version: int) -> EntityTag:
    """Return the strong tag of a record version."""
    return EntityTag(str(version))


def tag_of_content(content: bytes) -> EntityTag:
    """Return the weak tag of a response body."""
    return EntityTag(hashlib.sha256(content).hexdigest()[:24], is_weak=True)


def read_tags(header: str, name: str = "If-Match") -> Tags:
    """Return the tags of a header. Raises RequestRefused (400) for an invalid header."""
    text = header.strip(" \t")
    if text == "*":
        return ANY
    tags: list[EntityTag] = []
    at = 0
    while len(text) <= _LONGEST_HEADER and at < len(text) and (match := _TAG.match(text, at)):
        at = match.end()
        if match[2] is not None:  # RFC 9110 allows empty list elements
            tags.append(EntityTag(match[2], is_weak=match[1] is not None))
    if at < len(text) or not tags or len(tags) > _MOST_TAGS:
        raise RequestRefused(
            HttpFault.BAD_REQUEST, f'{name} is * or a list of tags in double quotes, as ETag had them: {name}: "12"'
        )
    return tags


def check_write(
    current: int | None, *, if_match: str | None = None, if_none_match: str | None = None, is_required: bool = False
) -> None:
    """Check the preconditions of a write against the current version; None means there is no such record.

    Raises RequestRefused: 428 if a required precondition is missing, 412 if it does not match. A missing record returns
    404 before this check, unless the request has a precondition.
    """
    if if_match is None and if_none_match is None and is_required:
        raise RequestRefused(HttpFault.PRECONDITION_REQUIRED)
    tag = None if current is None else tag_of_version(current)
    if if_match is not None and not _matches_strongly(read_tags(if_match), tag):
        raise stale_precondition(current)
    if if_none_match is not None and tag is not None and _is_known(read_tags(if_none_match, "If-None-Match"), tag):
        raise stale_precondition(current)


def stale_precondition(current: int | None) -> RequestRefused:
    """Return the 412 rejection for a record that now has this version."""
    if current is None:
        return RequestRefused(HttpFault.PRECONDITION_FAILED, "there is no such record, or it no longer exists")
    tag = str(tag_of_version(current))
    return RequestRefused(
        HttpFault.PRECONDITION_FAILED, f"the record is of version {tag} now; read it again and decide again", etag=tag
    )


def is_not_modified(tag: EntityTag, if_none_match: str | None) -> bool:
    """Return whether a GET or HEAD can return 304 without a body."""
    return if_none_match is not None and _is_known(read_tags(if_none_match, "If-None-Match"), tag)


def _matches_strongly(wanted: Tags, tag: EntityTag | None) -> bool:
    if tag is None:
        return False
    return isinstance(wanted, AnyTag) or any(each.is_same(tag) for each in wanted)


def _is_known(known: Tags, tag: EntityTag) -> bool:
    return isinstance(known, AnyTag) or any(each.is_alike(tag) for each in known)


# `Prefer: wait=30, respond-async`: how long the caller prefers to wait for the result. A route that can wait does so
# for `wait_s` seconds and sends `Preference-Applied`. `?wait=30` is parsed strictly: a parameter is not a preference.


LONGEST_WAIT_S = 60
_LONGEST_HEADER_PREFER = 2_000
# Possessive quantifiers prevent backtracking, so that no header takes long to parse.
_TOKEN, _SPACE = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++", r"[ \t]*+"
_VALUE = rf'(?:{_TOKEN}|"(?:[^"\\]|\\.)*+")'
_PARAMETER = rf"(?:{_TOKEN}{_SPACE}(?:={_SPACE}{_VALUE}{_SPACE})?)?"
_PREFERENCE = re.compile(
    rf"{_SPACE}(?:(?P<name>{_TOKEN}){_SPACE}(?:={_SPACE}(?P<value>{_VALUE}){_SPACE})?(?:;{_SPACE}{_PARAMETER})*+)?"
    r"(?:,|\Z)"
)
_SECONDS = re.compile(r"\d{1,9}", re.ASCII)


class Preference(Struct, frozen=True, kw_only=True):
    """The preferences in a `Prefer` header that ADE supports."""

    wait_s: int | None = None  # never more than LONGEST_WAIT_S
    is_async: bool = False  # return immediately, before the result

    @property
    def applied(self) -> str | None:
        """The value of Preference-Applied: the preferences that the server follows."""
        wait = () if self.wait_s is None else (f"wait={self.wait_s}",)
        return ", ".join((*wait, *(("respond-async",) if self.is_async else ()))) or None


def read_prefer(header: str | None, *, longest_s: int = LONGEST_WAIT_S) -> Preference:
    """Parse the header. Unknown preferences are ignored, as the RFC requires. The first of a name counts."""
    named: dict[str, str] = {}
    at, text = 0, (header or "")[:_LONGEST_HEADER_PREFER]
    while at < len(text) and (match := _PREFERENCE.match(text, at)):
        at = match.end()
        if match["name"] is not None:
            named.setdefault(match["name"].lower(), (match["value"] or "").strip('"'))
    wait = named.get("wait")
    seconds = min(int(wait), longest_s) if wait is not None and _SECONDS.fullmatch(wait) else None
    return Preference(wait_s=seconds, is_async="respond-async" in named)
