"""Which webhooks want which events. A pattern is a type of event, all below a word (`task.*`), or all (`*`)."""

import re
from collections.abc import Sequence

from ade.core.event_types import TYPES, nearest_types
from ade.core.webhooks.errors import InvalidWebhook

EVERYTHING = "*"
MOST_PATTERNS = 50
_BELOW = ".*"
_PATTERN = re.compile(r"(?=.{1,100}\Z)(?:\*|[a-z0-9_]+(?:\.[a-z0-9_]+)*(?:\.\*)?)")


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise InvalidWebhook unless all can match something."""
    if not 1 <= len(patterns) <= MOST_PATTERNS:
        raise InvalidWebhook(f"a webhook names 1 to {MOST_PATTERNS} types of events, not {len(patterns)}")
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidWebhook(
                f"{pattern[:60]!r} is no type of events: write one like task.failed, all of a kind like task.*, or *"
            )


def check_known(patterns: Sequence[str]) -> None:
    """Raise InvalidWebhook for one that no event there is would ever match."""
    for pattern in patterns:
        if not any(_fits(pattern, each) for each in TYPES):
            near = nearest_types(pattern.removesuffix(_BELOW))
            meant = f"; did you mean {near}?" if near else "; the reference of events lists those there are"
            raise InvalidWebhook(f"no event is of the type {pattern[:60]!r}{meant}")


def matches(patterns: Sequence[str], event_type: str) -> bool:
    return any(_fits(pattern, event_type) for pattern in patterns)


def _fits(pattern: str, event_type: str) -> bool:
    if pattern == EVERYTHING:
        return True
    if pattern.endswith(_BELOW):
        return event_type.startswith(pattern[:-1])
    return pattern == event_type
