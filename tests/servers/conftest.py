"""The harness tells its own stories with the fixtures it offers to others."""

from tests.servers.plugin import pytest_terminal_summary, server_binary, server_pool

__all__ = ["pytest_terminal_summary", "server_binary", "server_pool"]
