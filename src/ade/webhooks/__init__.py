"""Webhooks: which events are sent where, signed and retried."""
