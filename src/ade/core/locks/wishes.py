"""What is wanted: a resource to read or to write."""

from collections.abc import Iterable
from enum import StrEnum, auto

from msgspec import Struct

from ade.core.errors import InvalidLock

MOST_WISHES = 100
_MOST_BYTES = 512


class LockMode(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    SHARED = auto()
    EXCLUSIVE = auto()


class Wish(Struct, frozen=True):
    resource: str
    mode: LockMode


def read(resource: str) -> Wish:
    """Shared: any number of readers at once, but no writer."""
    return Wish(resource, LockMode.SHARED)


def write(resource: str) -> Wish:
    """Exclusive: nobody else at all."""
    return Wish(resource, LockMode.EXCLUSIVE)


def wishes_of(wanted: Iterable[str | Wish]) -> list[Wish]:
    """A bare name is to be written."""
    return [write(one) if isinstance(one, str) else one for one in wanted]


def merged(wishes: Iterable[Wish]) -> tuple[Wish, ...]:
    """Sorted, and each resource once: who wants it both shared and exclusive wants it exclusive. Raises InvalidLock."""
    modes: dict[str, LockMode] = {}
    for wish in wishes:
        check_lock_name("resource", wish.resource)
        if modes.get(wish.resource) is not LockMode.EXCLUSIVE:
            modes[wish.resource] = wish.mode
    if len(modes) > MOST_WISHES:
        raise InvalidLock(f"one request may name at most {MOST_WISHES} resources, not {len(modes)}")
    return tuple(Wish(resource, modes[resource]) for resource in sorted(modes))


def check_lock_name(what: str, text: str) -> None:
    """Names become parts of keys, so they have neither braces nor anything that cannot be printed."""
    if not text or len(text.encode(errors="replace")) > _MOST_BYTES or not text.isprintable() or set(text) & {"{", "}"}:
        raise InvalidLock(
            f"{what} {text[:120]!r} is not valid: use 1 to {_MOST_BYTES} bytes of printable characters without braces"
        )
