"""Every test here is told on a real PostgreSQL."""

from tests.stores.postgres.plugin import postgres_server, pytest_terminal_summary

__all__ = ["postgres_server", "pytest_terminal_summary"]
