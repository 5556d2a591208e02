-- Lines of a task behind a place.
SELECT o.seq, o.run_id, o.attempt, o.at, o.stream, o.text
  FROM task t JOIN output o ON o.task_seq = t.seq
 WHERE t.id = :task_id AND o.seq > :after ORDER BY o.seq LIMIT :limit
