"""Pagination cursors, and the response types Page, VersionedRecord, and RawContent.

A cursor is opaque and is valid only for its own list and filters. It is not a secret: a forged cursor only yields
another position in a list that the caller can read anyway. The checksum detects mistakes, such as a filter changed
between pages.

An operation returns `write_cursor("tasks", filters, page.next)` as `next` and calls `read_cursor("tasks", filters,
text)` for `?cursor=`. `filters` are the query parameters without `cursor` and `limit`, so the page size can change.
"""

import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from ade.server.problems import HttpFault, RequestRefused

_VERSION = 1
_CHECK = 8
_LONGEST = 2_000
_MOST_INT = 2**63

Position = int | str
_decode = msgspec.json.Decoder(Position).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def write_cursor(of_list: str, filters: Mapping[str, Any], position: Position) -> str:
    """Return a cursor for the position after `position`. Filters are JSON values; None is ignored."""
    where = _encode(position)
    packed = bytes([_VERSION]) + _check(of_list, filters, where) + where
    return urlsafe_b64encode(packed).rstrip(b"=").decode()


def read_cursor(of_list: str, filters: Mapping[str, Any], text: str) -> Position:
    """Return the position in a cursor. Raises RequestRefused (400) unless list and filters match."""
    packed = _unpacked(text)
    if packed[0] != _VERSION:
        raise _refused("the cursor is from another version of ADE; start again without one")
    check, where = packed[1 : 1 + _CHECK], packed[1 + _CHECK :]
    if check != _check(of_list, filters, where):
        raise _refused("the cursor is from another list or another filter; start again without one")
    try:
        position: Position = _decode(where)
    except msgspec.DecodeError:
        raise _refused("the cursor is damaged; start again without one") from None
    if isinstance(position, int) and not -_MOST_INT <= position < _MOST_INT:
        raise _refused("the cursor is damaged; start again without one")
    return position


def _unpacked(text: str) -> bytes:
    """Decode a cursor, accepting only the canonical encoding that `write_cursor` produces."""
    if 0 < len(text) <= _LONGEST and text.isascii():
        try:
            packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (binascii.Error, ValueError):
            packed = b""
        if len(packed) > 1 + _CHECK and urlsafe_b64encode(packed).rstrip(b"=").decode() == text:
            return packed
    raise _refused("the cursor is damaged; pass it exactly as returned, or start again without one")


def _check(of_list: str, filters: Mapping[str, Any], where: bytes) -> bytes:
    known = {name: value for name, value in filters.items() if value is not None}
    parts = (of_list.encode(), _encode(known), where)
    framed = b"".join(len(part).to_bytes(8) + part for part in parts)
    return hashlib.blake2b(framed, digest_size=_CHECK, person=b"ade cursor").digest()


def _refused(detail: str) -> RequestRefused:
    return RequestRefused(HttpFault.INVALID_CURSOR, detail)


T = TypeVar("T")


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a list. `next` is the cursor of the following page; absent at the end.

    A page with `is_partial` ended before it was full, because as many records were examined as one request may: pass
    `next` to examine more, even if the page is empty.
    """

    items: Sequence[T]
    next: str | None = None
    is_partial: bool | None = None  # absent unless true
    count: int | None = None  # of all matches, if the request asks for it


class VersionedRecord(Struct, Generic[T], frozen=True):
    """A record and its version. Over HTTP the version is the ETag, and the body is only the record."""

    record: T
    version: int


class RawContent(Struct, frozen=True, kw_only=True):
    """A response that is not a record: text, a file, or JSON as it was stored."""

    media_type: str
    body: bytes | AsyncIterator[bytes]
    file_name: str | None = None  # for Content-Disposition
    policy: str | None = None  # Content-Security-Policy of an HTML page
