"""Tasks and queues: records, rules, enqueueing, schedules, and dead letters."""
