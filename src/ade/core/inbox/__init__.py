"""The inbox of a conversation: what it has still to be told, in which order, in how many turns, and by whom."""
