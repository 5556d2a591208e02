-- The oldest ready task of each lane, by its age in line.
SELECT l.queue, (SELECT max(t.run_after, t.created_at) FROM task t INDEXED BY task_ready
                  WHERE t.stage = 'ready' AND t.needs IS NULL AND t.queue = l.queue AND t.name = l.name
                    AND t.priority = p.value
                  ORDER BY t.seq LIMIT 1)
  FROM (SELECT DISTINCT queue, name FROM tally WHERE status IN ('pending', 'stalled') AND count > 0) AS l,
       json_each('[0,1,2,3,4,5,6,7,8,9]') AS p
 UNION ALL
SELECT l.queue, (SELECT max(t.run_after, t.created_at) FROM task t INDEXED BY task_asking
                  WHERE t.stage = 'ready' AND t.needs IS NOT NULL AND t.queue = l.queue AND t.name = l.name
                    AND t.needs = l.needs AND t.priority = p.value
                  ORDER BY t.seq LIMIT 1)
  FROM asking_lane AS l, json_each('[0,1,2,3,4,5,6,7,8,9]') AS p
