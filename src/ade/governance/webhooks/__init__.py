"""Webhooks: made and changed by people, followed through the event log, and delivered by tasks of ADE's own queue."""
