-- Hand tasks to one worker. The attempt counts from here. :rows is a JSON array of [seq, run_id].
UPDATE task
   SET status = 'running', stage = NULL, version = version + 1, attempt = attempt + 1, run_id = c.value ->> 1,
       worker_id = :worker_id, lease_until = :lease_until, started_at = :now, updated_at = :now
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0
