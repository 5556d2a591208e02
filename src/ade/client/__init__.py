"""The typed client, over HTTP or directly on a store."""
