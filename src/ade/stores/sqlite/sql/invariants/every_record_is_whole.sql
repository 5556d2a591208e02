-- No task without its detail, and none that cannot be read.
SELECT 'task ' || t.id || ' has no detail that can be read' FROM task t
 WHERE NOT EXISTS (SELECT 1 FROM task_detail d WHERE d.seq = t.seq AND json_valid(d.detail)) LIMIT 5
