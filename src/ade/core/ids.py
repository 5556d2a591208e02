"""Ids: UUIDv7 from a time and random bytes given by the caller."""

import re

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def uuid7(now_ms: int, entropy: bytes) -> str:
    """A UUIDv7 in its usual text form. `entropy` is ten random bytes."""
    number = (now_ms & 0xFFFFFFFFFFFF) << 80 | int.from_bytes(entropy[:10], "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_task_id(text: str) -> bool:
    return _UUID.fullmatch(text) is not None
