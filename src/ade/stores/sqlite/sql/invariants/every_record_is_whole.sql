-- No task without its detail.
SELECT 'task ' || t.id || ' has no detail' FROM task t
 WHERE NOT EXISTS (SELECT 1 FROM task_detail d WHERE d.seq = t.seq) LIMIT 5
