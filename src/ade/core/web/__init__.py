"""The conventions of the HTTP API as plain values and functions: no framework, no sockets, no clock."""
