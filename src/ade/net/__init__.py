"""A small HTTP/1.1 client: no proxy from the environment, no redirect followed, everything bounded."""
