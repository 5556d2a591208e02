"""Fixtures for tests on real servers, to be imported by name in a conftest file."""

from collections.abc import Iterator

import pytest

from tests.servers.binaries import KINDS, Binary, available, missing
from tests.servers.certificates import MISSING_OPENSSL, openssl
from tests.servers.pool import POOL, Pool
from tests.servers.server import WITHOUT_TLS


def binary_or_skip(kind: str) -> Binary:
    """The server program of this kind, or the test is skipped with the reason."""
    found = available().get(kind)
    if found is None:
        pytest.skip(missing(kind))
    assert found is not None
    return found


def tls_or_skip(binary: Binary) -> None:
    """Skip unless this server can speak TLS and a certificate can be made."""
    if not binary.tls:
        pytest.skip(f"{binary}: {WITHOUT_TLS}")
    if openssl() is None:
        pytest.skip(MISSING_OPENSSL)


@pytest.fixture(scope="session")
def server_pool() -> Iterator[Pool]:
    """The servers of this run."""
    yield POOL
    POOL.close()


@pytest.fixture(params=KINDS)
def server_binary(request: pytest.FixtureRequest) -> Binary:
    """Each kind of server in turn; what is not installed is skipped."""
    return binary_or_skip(request.param)
