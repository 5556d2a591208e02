-- Workers and until when their last heartbeat counts.

-- name: workers.register
-- Register a worker, or record its heartbeat.
INSERT INTO worker (id, worker, heartbeat_until) VALUES (:id, :worker, :until)
    ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, heartbeat_until = excluded.heartbeat_until

-- name: workers.deregister
-- Delete a worker.
DELETE FROM worker WHERE id = :id

-- name: workers.list
-- List all registered workers.
SELECT worker, heartbeat_until FROM worker ORDER BY id

-- name: workers.delete_lost
-- Delete lost workers that hold no task.
DELETE FROM worker
 WHERE heartbeat_until < :steady
   AND NOT EXISTS (SELECT 1 FROM task INDEXED BY task_lease WHERE status = 'running' AND worker_id = worker.id)
RETURNING id
