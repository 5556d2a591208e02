"""Passwords: stored as scrypt hashes that contain their own cost, and compared without a timing leak."""

import asyncio
import hashlib
import hmac
import os
from base64 import b64decode, b64encode

from msgspec import Struct

from ade.accounts.model import WeakPassword

_SHORTEST, _LONGEST = 12, 1_000
_MEMORY = 1 << 28


class HashCost(Struct, frozen=True):
    """The cost of one guess: 32 MiB, and some tenths of a second."""

    n: int = 1 << 15
    r: int = 8
    p: int = 3


USUAL = HashCost()


def check_strength(password: str) -> None:
    """Raise WeakPassword. Only the length counts; no special characters are required."""
    if not _SHORTEST <= len(password) <= _LONGEST:
        raise WeakPassword(f"a password has {_SHORTEST} to {_LONGEST:,} characters, not {len(password)}")


async def hashed(password: str, cost: HashCost = USUAL) -> str:
    """Hash a password on another thread, so that the event loop is not blocked."""
    salt = os.urandom(16)
    return _text(cost, salt, await asyncio.to_thread(_scrypt, password, salt, cost))


async def matches(password: str, password_hash: str | None) -> bool:
    """Compare a password with a hash. Without a hash the same work is done, so that timing does not reveal which
    accounts exist."""
    cost, salt, digest = _parts(password_hash or _NOBODY)
    found = await asyncio.to_thread(_scrypt, password, salt, cost)
    return hmac.compare_digest(found, digest) and password_hash is not None


def _scrypt(password: str, salt: bytes, cost: HashCost) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")[: 4 * _LONGEST]  # bounds the work for long input
    return hashlib.scrypt(secret, salt=salt, n=cost.n, r=cost.r, p=cost.p, maxmem=_MEMORY)


def _text(cost: HashCost, salt: bytes, digest: bytes) -> str:
    return f"scrypt${cost.n}${cost.r}${cost.p}${b64encode(salt).decode()}${b64encode(digest).decode()}"


def _parts(text: str) -> tuple[HashCost, bytes, bytes]:
    _, n, r, p, salt, digest = text.split("$")
    return HashCost(int(n), int(r), int(p)), b64decode(salt), b64decode(digest)


_NOBODY = _text(USUAL, bytes(16), bytes(64))
