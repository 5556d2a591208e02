"""Commands about workers and maintenance."""
