"""Servers of the neighbors."""

from tests.common.http.test_bad_servers import contexts
from tests.server.conftest import server, sqlite_server

__all__ = ["contexts", "server", "sqlite_server"]
