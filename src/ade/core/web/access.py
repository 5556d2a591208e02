"""What somebody may do with a route."""

from enum import StrEnum, auto


class Access(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    ALLOWED = auto()
    OWN = auto()  # on what is the caller's own
    DENIED = auto()  # 403
    UNKNOWN = auto()  # 401
