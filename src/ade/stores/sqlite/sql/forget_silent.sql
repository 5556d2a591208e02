-- Workers silent for long that hold nothing.
DELETE FROM worker
 WHERE heartbeat_until < :steady
   AND NOT EXISTS (SELECT 1 FROM task INDEXED BY task_lease WHERE status = 'running' AND worker_id = worker.id)
RETURNING id
