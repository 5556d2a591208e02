"""Processes of agent programs: started, supervised, and killed with everything they started."""
