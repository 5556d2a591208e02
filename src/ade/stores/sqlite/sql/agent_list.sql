-- All agents by name.
SELECT id, max_tasks, status, registered_at, seen_until, type, capabilities FROM agent ORDER BY id
