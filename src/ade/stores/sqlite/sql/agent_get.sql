-- One agent.
SELECT id, max_tasks, status, registered_at, seen_until, type, capabilities FROM agent WHERE id = :id
