-- Events behind a place in the log.
SELECT seq, type, at, task_id, actor, payload FROM event WHERE seq > :after ORDER BY seq LIMIT :limit
