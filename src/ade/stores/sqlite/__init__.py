"""The embedded store: one SQLite file, many processes on one machine; `memory://` is the same in memory."""

from ade.stores.sqlite.opening import StoreOptions, open_sqlite

__all__ = ["StoreOptions", "open_sqlite"]
