"""Output formats of agent programs, one module per program."""
