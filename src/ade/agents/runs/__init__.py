"""One run of an agent program, from its command line to its outcome."""
