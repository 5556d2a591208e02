"""A lock book in memory: the smallest store there is, for the rules themselves."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from ade.locks.model import LockLoad, LockMode, LockRequest, place_in_line
from ade.locks.rules import LockTable
from tests.domain import Event, validate_request

Result = TypeVar("Result")
READ, WRITE = LockMode.SHARED, LockMode.EXCLUSIVE


class MemoryLocks:
    def __init__(self) -> None:
        self.requests: dict[str, LockRequest] = {}
        self.events: list[Event] = []
        self.rates: dict[str, int] = {}
        self.steady_ms = 1_000_000
        self.now_us = 1_700_000_000_000_000
        self._newest = (0, 0)

    def get(self, request_id: str) -> LockRequest | None:
        return self.requests.get(request_id)

    def holders(self, resource: str) -> Iterable[LockRequest]:
        held = [one for one in self.requests.values() if one.is_granted and resource in one.resources]
        return sorted(held, key=place_in_line)

    def line(self, resource: str) -> Iterable[LockRequest]:
        waiting = [one for one in self.requests.values() if one.is_waiting and resource in one.resources]
        return iter(sorted(waiting, key=place_in_line))

    def newest(self) -> tuple[int, int]:
        return self._newest

    def crowd(self, request: LockRequest) -> LockLoad:
        """What there is already, the dead among them."""
        lines = (list(self.line(resource)) for resource in request.resources)
        owned = sum(one.owner == request.owner for one in self.requests.values())
        return LockLoad(max(map(len, lines)), owned, self.rates.get(request.owner, 0))

    def do(self, verb: Callable[[LockTable], Result]) -> Result:
        """Carry the verb out and write what it decided."""
        book = LockTable(self, now_us=self.now_us, steady_ms=self.steady_ms)
        result = verb(book)
        self.rates.update(book.rates)
        if not book.changed and not book.removed:
            return result
        for request_id in book.removed:
            self.requests.pop(request_id, None)
        self.requests.update(book.changed)
        self._newest = (book.seq, book.token)
        self.events += book.events
        return result

    def pass_time(self, ms: int) -> None:
        self.steady_ms += ms
        self.now_us += ms * 1000


def wanting(request_id: str, *wanted: tuple[str, LockMode], scope: str | None = None, priority: int = 5) -> LockRequest:
    """A request of an agent named after it."""
    return validate_request(
        id=request_id, owner=f"agent-{request_id}", scope=scope or request_id, wanted=wanted, priority=priority
    )
