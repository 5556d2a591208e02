"""Every test here is told on a real PostgreSQL."""

from tests.stores.postgres.plugin import postgres_server

__all__ = ["postgres_server"]
