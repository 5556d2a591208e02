-- An unreadable task fails; what could be read of it stays.
UPDATE task
   SET status = 'failed', stage = NULL, version = version + 1, lease_until = NULL, worker_id = NULL,
       finished_at = :now, updated_at = :now
 WHERE seq = :seq
RETURNING id, queue, name
