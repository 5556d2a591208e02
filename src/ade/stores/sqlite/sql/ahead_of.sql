-- How many ready tasks of the same queue come before this one, counted up to a bound.
SELECT count(*) FROM (
    SELECT 1
      FROM task me
      JOIN (SELECT DISTINCT queue, name FROM tally WHERE status IN ('pending', 'stalled') AND count > 0) AS l
        ON l.queue = me.queue
      JOIN task t INDEXED BY task_ready
        ON t.stage = 'ready' AND t.queue = l.queue AND t.name = l.name
       AND (t.priority, t.seq) < (me.priority, me.seq)
     WHERE me.id = :id
     LIMIT :limit)
