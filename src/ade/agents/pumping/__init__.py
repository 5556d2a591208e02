"""Pumps: what puts the batches of a conversation's inbox before its consumer, one after the other."""
