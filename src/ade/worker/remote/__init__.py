"""A worker over HTTP."""
