-- Whether a run holds a task now.
SELECT 1 FROM task INDEXED BY task_lease WHERE status = 'running' AND run_id = :run_id
