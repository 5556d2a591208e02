-- All agents by name.
SELECT id, max_tasks, status, registered_at, seen_until FROM agent ORDER BY id
