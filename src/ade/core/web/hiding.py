"""Fields of records that never leave: those that only a store understands, and secrets."""

from msgspec import Struct

INSIDE = frozenset({"lease_until", "heartbeat_until", "args_digest", "runs_until", "seen_until"})
_hidden: dict[type[Struct], frozenset[str]] = {}


def hide(record: type[Struct], *fields: str) -> None:
    """Never write these fields of a type; called where the type is defined or answered, before its first use."""
    _hidden[record] = _hidden.get(record, frozenset()) | frozenset(fields)


def hidden_of(record: type[Struct]) -> frozenset[str]:
    """The fields of a type that never leave."""
    return INSIDE | _hidden.get(record, frozenset())
