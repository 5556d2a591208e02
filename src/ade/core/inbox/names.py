"""What inboxes and their consumers may be called, and how much an inbox remembers for its consumer."""

import msgspec

from ade.core.inbox.errors import InvalidInbox
from ade.core.inbox.nesting import DEEPEST, is_too_deep

LONGEST_NAME = 200
LARGEST_MEMORY = 16_000  # bytes of JSON


def check_inbox_id(inbox_id: str) -> None:
    """Raises InvalidInbox. An id is a conversation's name, as agents give it."""
    _check_name("the id of an inbox", inbox_id)


def check_consumer(consumer: str) -> None:
    """Raises InvalidInbox."""
    _check_name("the consumer of an inbox", consumer)


def _check_name(what: str, name: object) -> None:
    is_text = isinstance(name, str) and 1 <= len(name) <= LONGEST_NAME and name.isprintable()
    if not is_text or any(each in str(name) for each in " {}"):
        raise InvalidInbox(
            f"{what} has 1 to {LONGEST_NAME} printable characters, no spaces and no braces; this has not: {name!r:.120}"
        )


def check_memory(memory: object) -> None:
    """Raises InvalidInbox unless it is small and comes back from JSON as it is."""
    try:
        encoded = msgspec.json.encode(memory)
        decoded = msgspec.json.decode(encoded)
        is_same = decoded == memory
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidInbox(f"what an inbox remembers must be JSON: {error}") from None
    if len(encoded) > LARGEST_MEMORY:
        raise InvalidInbox(f"an inbox remembers at most {LARGEST_MEMORY:,} bytes of JSON, not {len(encoded):,}")
    if is_too_deep(decoded):
        raise InvalidInbox(f"what an inbox remembers lies at most {DEEPEST} deep in one another; make it flatter")
    if not isinstance(memory, dict) or not is_same:
        raise InvalidInbox("what an inbox remembers must be an object of plain JSON: texts, numbers, lists, objects")
