"""Consumers of the event log: each reads it in order through a named cursor of its own."""
