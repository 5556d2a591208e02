"""The HTTP interface: an ASGI app made from the table of routes, and the server that runs it."""
