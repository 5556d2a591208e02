"""Large arguments and results: they are stored as blobs, and the record contains a reference.

In a record, an object with the name `$blob` at its top level is always a reference, and only `Payloads.spill` writes
one. User data with that name is escaped: it is stored as a blob itself, whatever its size.
"""

import hashlib

import msgspec
from msgspec import Raw, Struct

from ade.errors import PayloadTooLarge, StoreCorrupt
from ade.stores.ports import BlobStore

_PREFIX = b'{"$blob":'
_NAME, _ESCAPED = b'"$blob"', b"\\u"  # JSON of other programs can spell a name with escapes


class _Reference(Struct, frozen=True, forbid_unknown_fields=True):
    blob: str = msgspec.field(name="$blob")
    size: int
    sha256: str


_decode = msgspec.json.Decoder(_Reference).decode


_LONGEST_LINE = 200  # characters


def beginning_of(raw: Raw) -> str:
    """Return the beginning of this JSON, for a line of a list. A blob is not loaded for that."""
    if (reference := _reference_in(raw)) is not None:
        return f"(large: {reference.size:,} bytes)"
    text = bytes(memoryview(raw)[: 4 * _LONGEST_LINE]).decode(errors="ignore")
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"


def is_reference(raw: Raw) -> bool:
    """Whether this JSON of a record is a reference to a blob."""
    return _reference_in(raw) is not None


def _reference_in(raw: Raw) -> _Reference | None:
    """Return the reference in a record. JSON of any other form is user data."""
    if memoryview(raw)[: len(_PREFIX)] != _PREFIX:
        return None
    try:
        return _decode(raw)
    except msgspec.MsgspecError:
        return None


def _has_reserved_name(raw: Raw) -> bool:
    """Whether user data has the name of a reference at its top level."""
    content = bytes(raw)
    if _NAME not in content and _ESCAPED not in content:
        return False
    try:
        value = msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError):
        return True
    return isinstance(value, dict) and "$blob" in value


class Payloads(Struct, frozen=True):
    """Moves large JSON to the blob store and back. Sizes are bytes of JSON."""

    blobs: BlobStore
    inline_limit: int = 128 * 1024
    hard_limit: int = 64 * 1024 * 1024

    def fits(self, raw: Raw) -> bool:
        """Whether this user data stays in the record. Data that could be mistaken for a reference never does."""
        return len(raw) <= self.inline_limit and not _has_reserved_name(raw)

    def is_kept(self, task_id: str, raw: Raw) -> bool:
        """Whether this is a reference to the spilled arguments of this task."""
        reference = _reference_in(raw)
        return reference is not None and reference.blob == f"{task_id}.args"

    async def spill(self, task_id: str, kind: str, raw: Raw) -> Raw:
        """Return the JSON for the record from user data: as it is or, once the blob is durable, a reference.

        Raises PayloadTooLarge.
        """
        if self.fits(raw):
            return raw
        content = bytes(raw)
        if len(content) > self.hard_limit:
            raise PayloadTooLarge(
                f"the {kind} of task {task_id} would take {len(content):,} bytes, more than the limit of"
                f" {self.hard_limit:,}; store the data elsewhere and pass a reference"
            )
        reference = _Reference(f"{task_id}.{kind}", len(content), hashlib.sha256(content).hexdigest())
        await self.blobs.put_blob(reference.blob, content)
        return Raw(msgspec.json.encode(reference))

    async def load(self, raw: Raw) -> Raw:
        """Return the user data of a record. Raises StoreCorrupt if the blob is missing or does not match its hash."""
        reference = _reference_in(raw)
        if reference is None:
            return raw
        content = await self.blobs.get_blob(reference.blob)
        if hashlib.sha256(content).hexdigest() != reference.sha256:
            raise StoreCorrupt(f"the blob {reference.blob} is not what was stored; restore it from a backup")
        return Raw(content)
