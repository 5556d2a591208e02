-- A task waits for as many as it has open edges.
SELECT 'task ' || t.id || ' waits for ' || t.waiting_on || ', edges are ' || count(d.on_seq)
  FROM task t LEFT JOIN dependency d ON d.task_seq = t.seq
 GROUP BY t.seq HAVING count(d.on_seq) <> t.waiting_on LIMIT 5
