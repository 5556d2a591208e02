-- Runs ended for good: their guard and their columns in one step. :rows is a JSON array of
-- [id, run_id, status, updated_at, finished_at]. Answers those that held their task; the others are looked at again.
UPDATE task
   SET version = version + 1, status = c.value ->> 2, stage = NULL, worker_id = NULL, lease_until = NULL,
       updated_at = c.value ->> 3, finished_at = c.value ->> 4
  FROM jsonb_each(:rows) AS c
 WHERE task.id = c.value ->> 0 AND task.status = 'running' AND task.run_id = c.value ->> 1
RETURNING id, seq, run_id, waiting_on
