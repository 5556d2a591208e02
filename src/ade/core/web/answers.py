"""What operations answer beside plain records. Server and client know them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """Part of a list. `next` is the cursor of the following page; absent at the end."""

    items: Sequence[T]
    next: str | None = None


class Tagged(Struct, Generic[T], frozen=True):
    """A record whose version is not in it. Over HTTP the version is the ETag, and the body is the record alone."""

    record: T
    version: int


@dataclass(frozen=True, kw_only=True)
class Content:
    """An answer that is no record: a text, a file, JSON as it was stored."""

    media_type: str
    body: bytes | AsyncIterator[bytes]
    file_name: str | None = None  # to be kept under, by who asks for it
    policy: str | None = None  # of a page: what it may load and do (Content-Security-Policy)
