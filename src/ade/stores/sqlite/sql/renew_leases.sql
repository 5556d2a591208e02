-- Extend the leases of a worker's runs; never backwards. :run_ids is a JSON array.
UPDATE task SET lease_until = max(lease_until, :until)
 WHERE seq IN (SELECT seq FROM task INDEXED BY task_lease
                WHERE status = 'running' AND worker_id = :worker_id
                  AND run_id IN (SELECT value FROM json_each(:run_ids)))
RETURNING run_id
