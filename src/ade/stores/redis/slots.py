"""Which slot of a cluster a key is in."""

import binascii


def key_slot(key: bytes) -> int:
    """By the text in braces if there is one, else by the whole key."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % 16384
