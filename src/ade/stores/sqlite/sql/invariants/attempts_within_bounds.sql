-- Nothing runs more often than it may.
SELECT 'task ' || t.id || ' has attempt ' || t.attempt || ' of ' || coalesce(d.detail ->> '$.max_attempts', 3)
  FROM task t JOIN task_detail d ON d.seq = t.seq
 WHERE t.attempt > coalesce(d.detail ->> '$.max_attempts', 3) LIMIT 5
