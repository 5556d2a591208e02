"""Real servers for the stories of this folder."""

from tests.servers.plugin import pytest_terminal_summary, server_binary, server_pool

__all__ = ["pytest_terminal_summary", "server_binary", "server_pool"]
