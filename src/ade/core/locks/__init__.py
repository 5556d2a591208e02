"""Locks: who may touch what, in which order, and what becomes of those who wait for each other."""
