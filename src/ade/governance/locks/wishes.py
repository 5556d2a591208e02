"""What is wanted: a resource to read or to write."""

from collections.abc import Iterable
from typing import NamedTuple

from ade.core.locks.records import LockMode


class Wish(NamedTuple):
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
