"""Holders of locks, each for one kind of owner."""
