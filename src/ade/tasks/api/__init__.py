"""HTTP operations on tasks, queues, schedules, and dead letters."""
