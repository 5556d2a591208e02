-- The counters say what the records say.
SELECT 'tally of ' || coalesce(c.queue, r.queue) || ' ' || coalesce(c.name, r.name) || ' '
       || coalesce(c.status, r.status) || ' is ' || coalesce(c.count, 0) || ', records are ' || coalesce(r.count, 0)
  FROM (SELECT * FROM tally WHERE count <> 0) AS c
  FULL JOIN (SELECT queue, name, status, count(*) AS count FROM task GROUP BY 1, 2, 3) AS r
    ON c.queue = r.queue AND c.name = r.name AND c.status = r.status
 WHERE c.count IS NOT r.count LIMIT 5
