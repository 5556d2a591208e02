-- Lines a run wrote. :rows is a JSON array of [task_id, run_id, attempt, at, stream, text].
INSERT INTO output (task_seq, run_id, attempt, at, stream, text)
SELECT t.seq, l.value ->> 1, l.value ->> 2, l.value ->> 3, l.value ->> 4, l.value ->> 5
  FROM jsonb_each(:rows) AS l JOIN task t ON t.id = l.value ->> 0 ORDER BY l.key
