"""Read models for every front end: why a task waits, how deep the queues are, how the workers do."""
