"""The server as a fixture, to be imported by name in a conftest file, with the hook that says why it was missing."""

import pytest

from tests.servers.plugin import pytest_terminal_summary, skip
from tests.stores.postgres.server import NoPostgres, PostgresServer, shared_server

__all__ = ["postgres_or_skip", "postgres_server", "pytest_terminal_summary"]


def postgres_or_skip() -> PostgresServer:
    """The server of this run, or the test is skipped with the reason."""
    try:
        return shared_server()
    except NoPostgres as error:
        skip(str(error))
        raise


@pytest.fixture
def postgres_server() -> PostgresServer:
    return postgres_or_skip()
