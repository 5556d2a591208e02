"""What looks through the whole store is done once at a time: many at once would keep all others waiting."""

from collections.abc import Iterator
from contextlib import contextmanager

from ade.core.web.problems import RequestRefused
from ade.core.web.statuses import Fault
from ade.operations.kit import Office

_LATER_S = 10


@contextmanager
def alone(office: Office, what: str) -> Iterator[None]:
    """Raises RequestRefused (503) while the same is being done for somebody else."""
    if what in office.busy:
        raise RequestRefused(Fault.UNAVAILABLE, f"{what} is under way already; ask again later", retry_after=_LATER_S)
    office.busy.add(what)
    try:
        yield
    finally:
        office.busy.discard(what)
