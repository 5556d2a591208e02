-- One agent.
SELECT id, max_tasks, status, registered_at, seen_until FROM agent WHERE id = :id
