"""A typed client of the API: the same calls over HTTP to a server, and directly on a store of this machine."""
