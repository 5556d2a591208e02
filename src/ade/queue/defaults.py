"""What holds for tasks of which nothing else is said."""

from msgspec import Struct

from ade.core.retry import Backoff


class TaskDefaults(Struct, frozen=True, kw_only=True):
    """What holds for a task when neither its definition nor its options say otherwise."""

    max_attempts: int = 3
    timeout_ms: int | None = None
    backoff: Backoff = Backoff()
    result_ttl_ms: int | None = None
