"""What the reference says about a type of event."""

from typing import NamedTuple


class Told(NamedTuple):
    """When an event of a type is written, and what its payload holds. Fields in `sometimes` may be absent."""

    when: str
    always: tuple[str, ...] = ()
    sometimes: tuple[str, ...] = ()
