"""Where things go that are found by their name alone, whatever task or queue they belong to."""

from ade.stores.redis.slots import key_slot


def spread(name: str, partitions: int) -> int:
    """The partition of what has this name."""
    return 0 if partitions == 1 else key_slot(name.encode()) % partitions
