-- Nothing runs more often than it may.
SELECT 'task ' || id || ' has attempt ' || attempt || ' of ' || most
  FROM (SELECT t.id, t.attempt,
               iif(json_valid(d.detail), coalesce(d.detail ->> '$.max_attempts', 3), t.attempt) AS most
          FROM task t JOIN task_detail d ON d.seq = t.seq)
 WHERE attempt > most LIMIT 5
