-- The newest events, newest first.
SELECT seq, type, at, task_id, actor, payload FROM event ORDER BY seq DESC LIMIT :limit
