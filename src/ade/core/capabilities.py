"""What a worker can do, by words of its own: tasks ask for such words, and only who has all of them gets the task."""

import re
from collections.abc import Callable, Collection, Iterable

from ade.core.errors import AdeError

MOST_CAPABILITIES = 32
_CAPABILITY = re.compile(r"[a-z0-9][a-z0-9._-]{0,49}")


def capabilities_of(words: Iterable[str], what: str, error: Callable[[str], AdeError]) -> tuple[str, ...]:
    """The words sorted, each once. Raises the error, which begins with `what` they belong to."""
    known = sorted(set(words))
    for word in known:
        if not _CAPABILITY.fullmatch(word):
            raise error(
                f"{what}: {word[:60]!r} is not a valid capability; begin with a small letter or a digit, then small"
                " letters, digits, '.', '_' and '-', at most 50"
            )
    if len(known) > MOST_CAPABILITIES:
        raise error(f"{what}: {len(known)} capabilities are too many; {MOST_CAPABILITIES} are the most")
    return tuple(known)


def as_text(needs: Collection[str]) -> str:
    """What a task asks for, as one text: equal for tasks that stand in one line. Empty for nothing."""
    return ",".join(needs)


def are_met(needs: str, capabilities: Collection[str]) -> bool:
    """Whether somebody who can do this much may have a task that asks for so much (as such a text)."""
    return not needs or all(need in capabilities for need in needs.split(","))
