"""Readers of the event log, each in order: the audit copy through a named cursor, live feeds from where they are."""
