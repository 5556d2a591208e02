"""The server as a fixture, to be imported by name in a conftest file."""

import pytest

from tests.stores.postgres.server import NoPostgres, PostgresServer, shared_server

__all__ = ["postgres_or_skip", "postgres_server"]


def postgres_or_skip() -> PostgresServer:
    """The server of this run, or the test is skipped with the reason."""
    try:
        return shared_server()
    except NoPostgres as error:
        pytest.skip(str(error))


@pytest.fixture
def postgres_server() -> PostgresServer:
    return postgres_or_skip()
