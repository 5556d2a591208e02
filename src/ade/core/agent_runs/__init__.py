"""Agent runs, the pure part: which program to start and how, what its output means, and whether it spent too much."""
