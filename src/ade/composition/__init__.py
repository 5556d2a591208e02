"""Puts stores, services, workers, and servers together from the settings."""
