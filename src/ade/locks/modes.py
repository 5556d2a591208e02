"""What is wanted: a resource to read or to write."""

from collections.abc import Iterable
from enum import StrEnum, auto
from functools import lru_cache

from msgspec import Struct

from ade.errors import InvalidLock

MAX_LOCK_SPECS = 100
_MOST_BYTES = 512


class LockMode(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    SHARED = auto()
    EXCLUSIVE = auto()


class LockSpec(Struct, frozen=True):
    resource: str
    mode: LockMode


def read(resource: str) -> LockSpec:
    """Shared: any number of readers at once, but no writer."""
    return LockSpec(resource, LockMode.SHARED)


def write(resource: str) -> LockSpec:
    """Exclusive: nobody else at all."""
    return LockSpec(resource, LockMode.EXCLUSIVE)


def lock_specs_of(wanted: Iterable[str | LockSpec]) -> list[LockSpec]:
    """A bare name is to be written. Raises InvalidLock for what is no name at all."""
    return [_wish(one) for one in wanted]


def _wish(one: object) -> LockSpec:
    if isinstance(one, str):
        return write(one)
    if not isinstance(one, LockSpec):
        raise InvalidLock(f"name resources as text, by read(...) or by write(...), not as {one!r:.120}")
    return one


def merged(wishes: Iterable[LockSpec]) -> tuple[LockSpec, ...]:
    """Sorted, and each resource once: who wants it both shared and exclusive wants it exclusive. Raises InvalidLock."""
    modes: dict[str, LockMode] = {}
    for wish in wishes:
        check_lock_name("resource", wish.resource)
        if not isinstance(wish.mode, LockMode):
            raise InvalidLock(f"{wish.resource} is to be read(...) or to be written with write(...), not {wish.mode!r}")
        if modes.get(wish.resource) is not LockMode.EXCLUSIVE:
            modes[wish.resource] = wish.mode
    if len(modes) > MAX_LOCK_SPECS:
        raise InvalidLock(f"one request may name at most {MAX_LOCK_SPECS} resources, not {len(modes)}")
    return tuple(LockSpec(resource, modes[resource]) for resource in sorted(modes))


def check_lock_name(what: str, text: object) -> None:
    """Names become parts of keys, so they have neither braces nor anything that cannot be printed."""
    if not isinstance(text, str):
        raise InvalidLock(f"{what} must be text, not {text!r:.120}")
    if not is_lock_name(text):
        raise InvalidLock(
            f"{what} {text[:120]!r} is not valid: use 1 to {_MOST_BYTES} bytes of printable characters without braces"
        )


@lru_cache(4_096)
def is_lock_name(text: str) -> bool:
    is_short = 0 < len(text.encode(errors="replace")) <= _MOST_BYTES
    return is_short and text.isprintable() and not set(text) & {"{", "}"}
