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

from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault

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
            Fault.BAD_REQUEST, f'{name} is * or a list of tags in double quotes, as ETag had them: {name}: "12"'
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
        raise RequestRefused(Fault.PRECONDITION_REQUIRED)
    tag = None if current is None else tag_of_version(current)
    if if_match is not None and not _matches_strongly(read_tags(if_match), tag):
        raise stale_precondition(current)
    if if_none_match is not None and tag is not None and _is_known(read_tags(if_none_match, "If-None-Match"), tag):
        raise stale_precondition(current)


def stale_precondition(current: int | None) -> RequestRefused:
    if current is None:
        return RequestRefused(Fault.PRECONDITION_FAILED, "there is no such record, or not any more")
    tag = str(tag_of_version(current))
    return RequestRefused(
        Fault.PRECONDITION_FAILED, f"the record is of version {tag} now; read it again and decide again", etag=tag
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
