-- Events of one task behind a place in the log.
SELECT e.seq, e.type, e.at, e.task_id, e.actor, e.payload
  FROM task t JOIN event e INDEXED BY event_task ON e.task_seq = t.seq
 WHERE t.id = :task_id AND e.task_seq IS NOT NULL AND e.seq > :after ORDER BY e.seq LIMIT :limit
