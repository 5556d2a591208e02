"""How often an account may ask, by what it asks for."""

from collections.abc import Mapping
from enum import StrEnum, auto


class Asking(StrEnum):
    """Classes of requests that are counted apart."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    READ = auto()
    WRITE = auto()
    VOTE = auto()
    LOGIN = auto()
    CONFIRM = auto()  # the password once more: who tries one from outside must not keep out who is in


Rate = tuple[int, int]  # so many in so many milliseconds

RATES: Mapping[Asking, Rate] = {
    Asking.READ: (6_000, 60_000),
    Asking.WRITE: (3_000, 60_000),
    Asking.VOTE: (60, 60_000),
    Asking.LOGIN: (10, 60_000),
    Asking.CONFIRM: (10, 60_000),
}
