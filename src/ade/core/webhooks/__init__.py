"""Webhooks: what is told to other programs over HTTP, to whom, how it is signed, and where it must never go."""
