"""Every route of the HTTP API as data."""
