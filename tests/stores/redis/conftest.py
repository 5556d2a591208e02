"""Real servers for the stories of this folder."""

from tests.servers.plugin import server_binary, server_pool

__all__ = ["server_binary", "server_pool"]
