-- No two tasks run under one run id.
SELECT 'run ' || run_id || ' holds ' || count(*) || ' tasks' FROM task
 WHERE status = 'running' GROUP BY run_id HAVING count(*) > 1 LIMIT 5
