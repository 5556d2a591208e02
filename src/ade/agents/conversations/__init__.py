"""Conversations: an inbox per conversation, and the consumers that process it."""
