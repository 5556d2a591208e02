"""Fixtures for tests on real servers, to be imported by name in a conftest file (the summary hook too)."""

from collections.abc import Iterator

import pytest

from tests.servers.binaries import KINDS, Binary, available, missing
from tests.servers.certificates import MISSING_OPENSSL, openssl
from tests.servers.pool import POOL, Pool
from tests.servers.server import WITHOUT_TLS

_REASONS: set[str] = set()


def skip(reason: str) -> None:
    """Skip this test; the end of the run says why, also without `-rs`."""
    _REASONS.add(reason)
    pytest.skip(reason)


def binary_or_skip(kind: str) -> Binary:
    """The server program of this kind, or the test is skipped with the reason."""
    found = available().get(kind)
    if found is None:
        skip(missing(kind))
    assert found is not None
    return found


def tls_or_skip(binary: Binary) -> None:
    """Skip unless this server can speak TLS and a certificate can be made."""
    if not binary.tls:
        skip(f"{binary}: {WITHOUT_TLS}")
    if openssl() is None:
        skip(MISSING_OPENSSL)


@pytest.fixture(scope="session")
def server_pool() -> Iterator[Pool]:
    """The servers of this run."""
    yield POOL
    POOL.close()


@pytest.fixture(params=KINDS)
def server_binary(request: pytest.FixtureRequest) -> Binary:
    """Each kind of server in turn; what is not installed is skipped."""
    return binary_or_skip(request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name every server that was missing, once."""
    for reason in sorted(_REASONS):
        terminalreporter.write_line(f"SKIPPED tests on real servers: {reason}")
    _REASONS.clear()
