"""How a request is answered that may be refused."""

from collections.abc import Callable

from tests.domain import RequestRefused


def refused(call: Callable[[], object]) -> int | None:
    """The status of the refusal; None: it was let through."""
    try:
        call()
    except RequestRefused as refusal:
        return refusal.problem.status
    return None
