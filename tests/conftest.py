"""What every test shares: the event loop, a clock, stores, how hard random tests try, and the summary at the end."""

import signal
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ade.accounts import passwords
from ade.testing import TestClock
from tests import depth, summary
from tests.conformance.backends import BACKENDS, sound
from tests.domain import HashCost, Payloads, Stores
from tests.server.operations import ops
from tests.servers.plugin import server_binary, server_pool
from tests.servers.pool import NoSuchServer
from tests.tasks.queue_driver import QueueDriver

__all__ = ["ops", "server_binary", "server_pool"]
depth.load_profile()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script; commands would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio alone; ADE supports no other loop."""
    return "asyncio"


@pytest.fixture
def clock() -> TestClock:
    """It moves when a story says so."""
    return TestClock()


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: TestClock) -> AsyncIterator[Stores]:
    """Every kind of store that behaves in a way of its own; afterwards its invariants must hold."""
    async with sound(await BACKENDS[request.param].open(tmp_path, clock)) as opened:
        yield opened


@pytest.fixture
def payloads(stores: Stores) -> Payloads:
    return Payloads(stores.blobs, inline_limit=100, hard_limit=10_000)


@pytest.fixture
def queue(stores: Stores, payloads: Payloads, clock: TestClock) -> QueueDriver:
    return QueueDriver(stores, payloads, clock)


@pytest.fixture
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes that cost next to nothing, for tests that hash and check in this process alone."""
    hashing = passwords._scrypt
    monkeypatch.setattr(
        passwords, "_scrypt", lambda password, salt, _: hashing(password, salt, HashCost(n=2, r=1, p=1))
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Random tests are tried again in depth by `make test-all`; pytest selects by marks after this."""
    for item in items:
        if depth.is_random(item):
            item.add_marker(pytest.mark.deep)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    with _skipping_without_servers():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    with _skipping_without_servers():
        return (yield)


@contextmanager
def _skipping_without_servers() -> Iterator[None]:
    """A test that asks for a server which this machine does not have is skipped, and the summary says why."""
    try:
        yield
    except NoSuchServer as missing:
        pytest.skip(str(missing))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in summary.lines(terminalreporter.stats, list(BACKENDS)):
        terminalreporter.write_line(line)
