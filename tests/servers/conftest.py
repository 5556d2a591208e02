"""The harness tells its own stories with the fixtures it offers to others."""

from tests.servers.plugin import server_binary, server_pool

__all__ = ["server_binary", "server_pool"]
