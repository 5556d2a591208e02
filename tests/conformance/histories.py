"""What all random histories of a store share: the store, a loop to ask it in, and how they are run."""

import asyncio
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from ade.testing import TestClock
from tests.conformance.backends import BACKENDS
from tests.depth import IS_DEEP, examples
from tests.domain import Event, Stores

Answer = TypeVar("Answer")
_PAGE = 500


class StoreHistories(RuleBasedStateMachine):
    """One store with a clock of its own; afterwards its invariants must hold."""

    backend_name = "memory"
    played = 0  # how many histories have come to their end

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()  # a Runner would set a signal handler for each action, which is slow
        self._folder = tempfile.TemporaryDirectory()
        self.clock = TestClock()
        opening = BACKENDS[self.backend_name].open(Path(self._folder.name), self.clock)
        self.stores: Stores = self.do(opening)

    def do(self, action: Awaitable[Answer]) -> Answer:
        return self._loop.run_until_complete(action)

    async def faults(self) -> list[str]:
        """Return what must not be in the store at the end of a history."""
        return await self.stores.maintenance.check_invariants()

    def teardown(self) -> None:
        try:
            broken = self.do(self.faults())
        finally:
            self.do(self.stores.close())
            self._loop.close()
            self._folder.cleanup()
        assert not broken, broken
        type(self).played += 1


async def read_log(stores: Stores, after: int) -> list[Event]:
    """Return all events after this one. It asks again only when there may be more."""
    events = await stores.events.read(after, _PAGE)
    return events if len(events) < _PAGE else [*events, *await read_log(stores, events[-1].seq)]


def play(histories: type[StoreHistories], backend_name: str, *, in_depth: int, steps: int, share: int = 0) -> int:
    """Tell random histories to one store; answers how many there were. Each `share` has other ones."""
    fields = {"backend_name": backend_name}
    machine: type[StoreHistories] = type(f"{histories.__name__}On{backend_name.title()}", (histories,), fields)
    if settings().derandomize:  # runs at a desk try others each time
        seed(share)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(in_depth),
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return machine.played


PER_SHARE = 250 if IS_DEEP else 100
ATTACK_SHARES, RESPONSE_SHARES = 32, 8  # 8,000 and 2,000 histories for each store in `make test-all`
_SQLITE = ("memory", "memory", "memory", "sqlite")  # a file takes twice as long: its writes wait for the disk


def shares(count: int) -> list[tuple[str, int]]:
    """The parameters of histories that are told many times to SQLite (in memory, and each fourth share in a file) and
    to Valkey. In `make test-all` each share is a test, so that several processes can tell them at once.
    """
    numbers = range(count if IS_DEEP else 1)
    return [(_SQLITE[share % 4], share) for share in numbers] + [("valkey", share) for share in numbers]
