-- Every queue that was configured or used.
SELECT n.name, coalesce(q.paused, 0), q.max_depth
  FROM (SELECT name FROM queue UNION SELECT queue FROM tally) AS n LEFT JOIN queue q ON q.name = n.name
 ORDER BY n.name
