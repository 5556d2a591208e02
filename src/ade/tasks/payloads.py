"""Large arguments and results: they are stored as blobs, and the record contains a reference."""

import hashlib

import msgspec
from msgspec import Raw, Struct

from ade.errors import PayloadTooLarge, StoreCorrupt
from ade.stores.ports import BlobStore

_PREFIX = b'{"$blob":'


class _Reference(Struct, frozen=True):
    blob: str = msgspec.field(name="$blob")
    size: int
    sha256: str


_decode = msgspec.json.Decoder(_Reference).decode


_LONGEST_LINE = 200  # characters


def beginning_of(raw: Raw) -> str:
    """Return the beginning of this JSON, for a line of a list. A blob is not loaded for that."""
    if is_reference(raw):
        return f"(large: {_decode(raw).size:,} bytes)"
    text = bytes(memoryview(raw)[: 4 * _LONGEST_LINE]).decode(errors="ignore")
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"


def is_reference(raw: Raw) -> bool:
    """Whether this JSON is a reference to a blob."""
    return bytes(raw).startswith(_PREFIX)


class Payloads(Struct, frozen=True):
    """Moves large JSON to the blob store and back. Sizes are bytes of JSON."""

    blobs: BlobStore
    inline_limit: int = 128 * 1024
    hard_limit: int = 64 * 1024 * 1024

    def fits(self, raw: Raw) -> bool:
        """Whether this JSON stays in the record. JSON that looks like a reference never does, to prevent forgery."""
        return len(raw) <= self.inline_limit and not is_reference(raw)

    def is_kept(self, task_id: str, raw: Raw) -> bool:
        """Whether this is a reference to the spilled arguments of this task."""
        return is_reference(raw) and _decode(raw).blob == f"{task_id}.args"

    async def spill(self, task_id: str, kind: str, raw: Raw) -> Raw:
        """Return the JSON for the record: as it is or, once the blob is durable, a reference.

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
        """Return the JSON itself. Raises StoreCorrupt if the blob is missing or does not match its hash."""
        if not is_reference(raw):
            return raw
        reference = _decode(raw)
        content = await self.blobs.get_blob(reference.blob)
        if hashlib.sha256(content).hexdigest() != reference.sha256:
            raise StoreCorrupt(f"the blob {reference.blob} is not what was stored; restore it from a backup")
        return Raw(content)
