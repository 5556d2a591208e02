"""The HTTP server: requests, routing, authentication, and responses."""
