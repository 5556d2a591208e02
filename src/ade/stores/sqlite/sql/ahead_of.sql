-- How many ready tasks of the same queue come before this one, counted up to a bound, lane by lane.
SELECT count(*) FROM (
    SELECT 1
      FROM task me
     CROSS JOIN (SELECT DISTINCT queue, name FROM tally WHERE status IN ('pending', 'stalled') AND count > 0) AS l
     CROSS JOIN task t INDEXED BY task_ready
     WHERE me.id = :id AND l.queue = me.queue
       AND t.stage = 'ready' AND t.needs IS NULL AND t.queue = l.queue AND t.name = l.name
       AND (t.priority, t.seq) < (me.priority, me.seq)
     UNION ALL
    SELECT 1
      FROM task me
     CROSS JOIN asking_lane AS l
     CROSS JOIN task t INDEXED BY task_asking
     WHERE me.id = :id AND l.queue = me.queue
       AND t.stage = 'ready' AND t.needs IS NOT NULL AND t.queue = l.queue AND t.name = l.name
       AND t.needs = l.needs AND (t.priority, t.seq) < (me.priority, me.seq)
     LIMIT :limit)
