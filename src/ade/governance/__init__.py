"""What keeps agents in order: locks on what they share."""
