"""Figures over time, kept by a duty that follows the event log."""
