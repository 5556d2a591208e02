"""Opaque cursors: where a list goes on, good for that list and that filter alone.

A cursor is no secret and opens nothing: whoever makes one up gets at most another place of a list he may read anyway.
The checksum is there for mistakes, as when a filter is changed half-way, so that they are told and not answered.

How it is used: `cursor = write_cursor("tasks", filters, page.next)` into the answer's `next`, and
`after = read_cursor("tasks", filters, text)` for `?cursor=`; `filters` are the query parameters as they were read,
without `cursor` and `limit`, so that the size of a page may change on the way.
"""

import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
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
    """The place after `position`. Filters are JSON values; those that are None do not count."""
    where = _encode(position)
    packed = bytes([_VERSION]) + _check(of_list, filters, where) + where
    return urlsafe_b64encode(packed).rstrip(b"=").decode()


def read_cursor(of_list: str, filters: Mapping[str, Any], text: str) -> Position:
    """The position. Raises RequestRefused (400)."""
    packed = _unpacked(text)
    if packed[0] != _VERSION:
        raise _refused("the cursor is of another version of ADE; begin again without one")
    check, where = packed[1 : 1 + _CHECK], packed[1 + _CHECK :]
    if check != _check(of_list, filters, where):
        raise _refused("the cursor is of another list or another filter; begin again without one")
    try:
        position: Position = _decode(where)
    except msgspec.DecodeError:
        raise _refused("the cursor is damaged; begin again without one") from None
    if isinstance(position, int) and not -_MOST_INT <= position < _MOST_INT:
        raise _refused("the cursor is damaged; begin again without one")
    return position


def _unpacked(text: str) -> bytes:
    """Only the one way to write it that `write_cursor` has."""
    if 0 < len(text) <= _LONGEST and text.isascii():
        try:
            packed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (binascii.Error, ValueError):
            packed = b""
        if len(packed) > 1 + _CHECK and urlsafe_b64encode(packed).rstrip(b"=").decode() == text:
            return packed
    raise _refused("the cursor is damaged; give it back exactly as it was answered, or begin again without one")


def _check(of_list: str, filters: Mapping[str, Any], where: bytes) -> bytes:
    known = {name: value for name, value in filters.items() if value is not None}
    parts = (of_list.encode(), _encode(known), where)
    framed = b"".join(len(part).to_bytes(8) + part for part in parts)
    return hashlib.blake2b(framed, digest_size=_CHECK, person=b"ade cursor").digest()


def _refused(detail: str) -> RequestRefused:
    return RequestRefused(HttpFault.INVALID_CURSOR, detail)


# What operations answer beside plain records. Server and client know them.


T = TypeVar("T")


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a list. `next` is the cursor of the following page; absent at the end."""

    items: Sequence[T]
    next: str | None = None


class VersionedRecord(Struct, Generic[T], frozen=True):
    """A record whose version is not in it. Over HTTP the version is the ETag, and the body is the record alone."""

    record: T
    version: int


@dataclass(frozen=True, kw_only=True)
class RawContent:
    """An answer that is no record: a text, a file, JSON as it was stored."""

    media_type: str
    body: bytes | AsyncIterator[bytes]
    file_name: str | None = None  # to be kept under, by who asks for it
    policy: str | None = None  # of a page: what it may load and do (Content-Security-Policy)
