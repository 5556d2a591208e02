"""Ids: UUIDv7 from a time and random bytes given by the caller."""

import re

_VARIANT = {f"{digit:x}": f"{0x8 | digit & 0x3:x}" for digit in range(16)}  # two bits of it are fixed
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def uuid7(now_ms: int, entropy: bytes) -> str:
    """A UUIDv7 in its usual text form. `entropy` is ten random bytes."""
    time, rest = f"{now_ms & 0xFFFFFFFFFFFF:012x}", entropy.hex()
    return f"{time[:8]}-{time[8:]}-7{rest[1:4]}-{_VARIANT[rest[4]]}{rest[5:8]}-{rest[8:20]}"


def is_task_id(text: str) -> bool:
    return _UUID.fullmatch(text) is not None
