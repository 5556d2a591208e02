"""Anchors of the audit chain: signed lines with its head, for a place that the owner of the store cannot change."""

import asyncio
import hashlib
import hmac
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from ade.errors import AuditBroken
from ade.events.audit_chain import AuditEntry, AuditHead, line_of
from ade.events.audit_copy import AuditCopy, copy_events
from ade.events.model import AUDIT_ANCHORED, Event
from ade.settings import SettingsError
from ade.settings.sections import EventSettings
from ade.stores.ports import Stores

_FEWEST_KEY_BYTES = 16
_LARGEST_KEY, _LARGEST_FILE = 4_096, 256 * 1024 * 1024
_KEY_ADVICE = "32 random bytes in base64 or hexadecimal, stored away from the store"


class Anchor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The head of the chain at one moment. The signature is HMAC-SHA256 over the other fields."""

    at: int
    seq: int
    hash: str
    signature: str


_anchor_in = msgspec.json.Decoder(Anchor).decode


def signed_anchor(head: AuditHead, key: bytes, *, at: int) -> Anchor:
    """Return the signed anchor of a head."""
    return Anchor(at=at, seq=head.seq, hash=head.hash, signature=_signature(key, at, head.seq, head.hash))


def _signature(key: bytes, at: int, seq: int, digest: str) -> str:
    return hmac.new(key, f"ade-anchor-1\n{at}\n{seq}\n{digest}".encode(), hashlib.sha256).hexdigest()


def read_key(path: str | None) -> bytes:
    """Read the key that signs anchors. Raises SettingsError, which does not contain the key."""
    if path is None:
        raise SettingsError(
            f"no key signs anchors; name its file by events.anchor_key_file ({_KEY_ADVICE})",
            names=("events.anchor_key_file",),
        )
    try:
        key = Path(path).expanduser().read_bytes()[:_LARGEST_KEY].strip()
    except OSError as error:
        raise SettingsError(
            f"the key file {path} cannot be read: {error.strerror}; it needs {_KEY_ADVICE}",
            names=("events.anchor_key_file",),
        ) from error
    if len(key) < _FEWEST_KEY_BYTES:
        raise SettingsError(
            f"the key in {path} is shorter than {_FEWEST_KEY_BYTES} bytes; it needs {_KEY_ADVICE}",
            names=("events.anchor_key_file",),
        )
    return key


def append_anchor(path: str, anchor: Anchor) -> None:
    """Append an anchor to a file, durably. Raises SettingsError if the file cannot be written."""
    try:
        file = Path(path).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as opened:
            opened.write(msgspec.json.encode(anchor) + b"\n")
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise SettingsError(
            f"the anchor could not be written to {path}: {error.strerror}", names=("events.anchor_file",)
        ) from error


def read_anchors(path: str, key: bytes) -> list[Anchor]:
    """Read the anchors of a file and check their signatures. Raises AuditBroken, and SettingsError without the file."""
    try:
        with Path(path).expanduser().open("rb") as opened:
            lines = opened.read(_LARGEST_FILE).splitlines()
    except OSError as error:
        raise SettingsError(
            f"the anchors in {path} cannot be read: {error.strerror}", names=("events.anchor_file",)
        ) from error
    return [read_anchor(line, f"{path}:{number}", key) for number, line in enumerate(lines, 1) if line.strip()]


def read_anchor(line: bytes, place: str, key: bytes) -> Anchor:
    """Read one anchor and check its signature. Raises AuditBroken."""
    try:
        anchor = _anchor_in(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise AuditBroken(f"{place} is not an anchor: the file was edited, or is another one") from None
    expected = _signature(key, anchor.at, anchor.seq, anchor.hash)
    if not hmac.compare_digest(anchor.signature.encode(), expected.encode()):  # texts would have to be ASCII
        raise AuditBroken(f"the signature of {place} is not valid: the line was edited, or the key is another one")
    return anchor


async def check_anchors(anchors: Sequence[Anchor], hash_at: Callable[[int], Awaitable[str | None]]) -> None:
    """Check that the chain contains every anchored head. Raises AuditBroken, which names the first that is gone."""
    for anchor in anchors:
        found = await hash_at(anchor.seq)
        if found != anchor.hash:
            what = "the chain has no such entry" if found is None else f"its hash is {found[:16]} now"
            raise AuditBroken(
                f"entry {anchor.seq} was anchored with hash {anchor.hash[:16]}, and {what}: the copy was rewritten"
            )


async def copied_hash(copy: AuditCopy, seq: int) -> str | None:
    """Return the hash of an entry, or None if there is none."""
    entries = await copy.entries(seq - 1, 1)
    return entries[0].hash if entries and entries[0].seq == seq else None


class AnchorJob:
    """Anchors the head of the chain: as an event, for webhooks, and as a line of the file that the settings name."""

    def __init__(self, stores: Stores, copy: AuditCopy, settings: EventSettings) -> None:
        self._stores = stores
        self._copy = copy
        self._settings = settings

    async def anchor(self) -> int:
        """Anchor the head unless nothing has happened since the last time. Returns 0: there is nothing to repeat."""
        while await copy_events(self._stores.events, self._copy):
            pass
        entries = await self._copy.last_entries(1)
        if not entries or _is_anchor(entries[0]):
            return 0
        head, now = AuditHead(entries[0].seq, entries[0].hash), self._stores.clock.now()
        file = self._settings.anchor_file
        if file is not None:
            key = await asyncio.to_thread(read_key, self._settings.anchor_key_file)
            await asyncio.to_thread(append_anchor, file, signed_anchor(head, key, at=now))
        event = Event(type=AUDIT_ANCHORED, at=now, payload=structs.asdict(head))
        await self._stores.documents.write([], [event])
        return 0


def _is_anchor(entry: AuditEntry) -> bool:
    event = line_of(entry).event
    return event is not None and event.type == AUDIT_ANCHORED
