-- Write decided changes, the narrow part; guards were checked in the same transaction. See codec.changed_row.
UPDATE task
   SET version = version + 1,
       status = c.value ->> 1, stage = c.value ->> 2, priority = c.value ->> 3, run_after = c.value ->> 4,
       deadline = c.value ->> 5, generation = c.value ->> 6, attempt = c.value ->> 7, run_id = c.value ->> 8,
       worker_id = c.value ->> 9, lease_until = c.value ->> 10, updated_at = c.value ->> 11,
       started_at = c.value ->> 12, finished_at = c.value ->> 13, discarded = c.value ->> 14
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0
