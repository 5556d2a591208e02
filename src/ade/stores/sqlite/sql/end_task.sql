-- Write decided ends, the narrow part: only the columns an end moves. See codec.ended_row.
UPDATE task
   SET version = version + 1, status = c.value ->> 1, stage = NULL, worker_id = NULL, lease_until = NULL,
       updated_at = c.value ->> 2, finished_at = c.value ->> 3
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0
