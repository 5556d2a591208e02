-- Claims taken over from a silent worker, as events. :rows is a JSON array of [seq, previous worker].
INSERT INTO event (type, at, task_seq, task_id, payload)
SELECT 'task.reclaimed', :now, t.seq, t.id,
       json_object('attempt', t.attempt, 'previous_worker', c.value ->> 1, 'new_worker', t.worker_id, 'entry', t.seq)
  FROM jsonb_each(:rows) AS c
  JOIN task t ON t.seq = c.value ->> 0
