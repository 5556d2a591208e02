-- The claims, as events. :rows is a JSON array of [seq, run_id], in the order of the claim.
INSERT INTO event (type, at, task_seq, task_id, payload)
SELECT 'task.claimed', :now, t.seq, t.id, json_object('attempt', t.attempt, 'run_id', t.run_id, 'worker', t.worker_id)
  FROM jsonb_each(:rows) AS c
  JOIN task t ON t.seq = c.value ->> 0
 ORDER BY c.key
