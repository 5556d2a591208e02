"""What a server says about itself."""

from msgspec import Struct


class Liveness(Struct, frozen=True, kw_only=True):
    """The process answers, and nothing else is said with that."""

    alive: bool
    version: str


class Meaning(Struct, frozen=True, kw_only=True):
    """What a problem's code stands for."""

    code: str
    status: int
    title: str
    detail: str
    advice: str | None = None  # what helps at a command line
