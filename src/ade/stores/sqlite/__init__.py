"""The embedded store: one SQLite file, many processes on one machine; `memory://` is the same in memory."""
