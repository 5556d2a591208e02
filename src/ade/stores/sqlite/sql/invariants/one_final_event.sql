-- At most one final event for each task and generation.
SELECT 'task ' || task_id || ' has ' || ends || ' final events in ' || lives || ' generation(s)'
  FROM (SELECT task_id,
               sum(type IN ('task.succeeded', 'task.failed', 'task.cancelled', 'task.rejected')) AS ends,
               1 + sum(type = 'task.replayed') AS lives
          FROM event WHERE task_seq IS NOT NULL GROUP BY task_seq)
 WHERE ends > lives LIMIT 5
