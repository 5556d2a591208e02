"""The audit copy in PostgreSQL."""
