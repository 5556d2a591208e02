"""Arguments and results too large for a record live in the blob store; the record keeps a reference."""

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


def is_reference(raw: Raw) -> bool:
    """Whether this stands for something too large for a record."""
    return bytes(raw).startswith(_PREFIX)


class Payloads(Struct, frozen=True):
    """Sizes are bytes of JSON."""

    blobs: BlobStore
    inline_limit: int = 128 * 1024
    hard_limit: int = 64 * 1024 * 1024

    def fits(self, raw: Raw) -> bool:
        """Whether this stays in the record. JSON that looks like a reference never does, so none can be forged."""
        return len(raw) <= self.inline_limit and not is_reference(raw)

    def is_kept(self, task_id: str, raw: Raw) -> bool:
        """Whether this is a reference to what was spilled for the arguments of this very task."""
        return is_reference(raw) and _decode(raw).blob == f"{task_id}.args"

    async def spill(self, task_id: str, kind: str, raw: Raw) -> Raw:
        """What to keep in the record: the JSON itself or, once the blob is durable, a reference to it."""
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
        """The JSON itself. Raises StoreCorrupt when the blob is missing or is not what was stored."""
        if not is_reference(raw):
            return raw
        reference = _decode(raw)
        content = await self.blobs.get_blob(reference.blob)
        if hashlib.sha256(content).hexdigest() != reference.sha256:
            raise StoreCorrupt(f"the blob {reference.blob} is not what was stored; restore it from a backup")
        return Raw(content)
