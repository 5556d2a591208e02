"""Commands about tasks, queues, schedules, and dead letters."""
