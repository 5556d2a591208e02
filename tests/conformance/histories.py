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
from tests.domain import Stores

Answer = TypeVar("Answer")


class StoreHistories(RuleBasedStateMachine):
    """One store with a clock of its own; afterwards its invariants must hold."""

    backend_name = "memory"
    played = 0  # how many histories have come to their end

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        self.clock = TestClock()
        opening = BACKENDS[self.backend_name].open(Path(self._folder.name), self.clock)
        self.stores: Stores = self.do(opening)

    def do(self, action: Awaitable[Answer]) -> Answer:
        return self._loop.run(_awaited(action))

    def teardown(self) -> None:
        try:
            broken = self.do(self.stores.maintenance.check_invariants())
        finally:
            self.do(self.stores.close())
            self._loop.close()
            self._folder.cleanup()
        assert broken == []
        type(self).played += 1


async def _awaited(action: Awaitable[Answer]) -> Answer:
    return await action


def play(histories: type[StoreHistories], backend_name: str, *, in_depth: int, steps: int, share: int = 0) -> int:
    """Tell random histories to one store; answers how many there were. Each `share` has other ones."""
    fields = {"backend_name": backend_name}
    machine: type[StoreHistories] = type(f"{histories.__name__}On{backend_name.title()}", (histories,), fields)
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


PER_SHARE = 400 if IS_DEEP else 100


def shares(count: int) -> list[tuple[str, int]]:
    """The parameters of histories that are told to both stores many times. In `make test-all` each share is a test, so
    that several processes can tell them at once.
    """
    return [(store, share) for store in ("memory", "valkey") for share in range(count if IS_DEEP else 1)]
