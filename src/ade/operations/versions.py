"""Which version a write is for."""

from ade.operations.kit import Asked


def meant(asked: Asked, current: int) -> int | None:
    """The version that the write must find; None: whichever there is, as with `If-Match: *`. Raises 412 and 428."""
    asked.check_version(current)
    return None if asked.if_match is None or asked.if_match.strip() == "*" else current
