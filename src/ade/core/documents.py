"""Documents: small records of people, rules and settings, kept whole under a kind and an id."""

from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from ade.core.errors import StaleWrite

if TYPE_CHECKING:
    MaybeRaw = Raw | None
else:
    MaybeRaw = Raw


class Document(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`body` is JSON. `version` grows by 1 with every write under this kind and id.

    The first version is 1, or above all versions of its kind that were removed: none ever comes again.
    """

    kind: str
    id: str
    body: Raw
    version: int
    expires_at: int | None = None  # from then on it is not there, and may be removed


class DocumentWrite(Struct, frozen=True, kw_only=True):
    """What shall be under a kind and an id. Without a body: nothing.

    `seen` is the version that was read, 0 for none: somebody else's write in between is refused. None overwrites
    whatever is there.
    """

    kind: str
    id: str
    body: MaybeRaw = None
    seen: int | None = 0
    expires_at: int | None = None
    is_quiet: bool = False  # nobody follows it: RULES is not rung for it


def stale(write: DocumentWrite) -> StaleWrite:
    """What to raise when a document is not as it was seen."""
    return StaleWrite(f"the {write.kind} {write.id!r} has changed since it was read; read it again and decide again")
