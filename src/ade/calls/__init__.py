"""Calls that can be awaited, or waited for where there is no event loop. The app and the client answer with them."""
