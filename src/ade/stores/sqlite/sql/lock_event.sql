-- Append events about locks. :rows is a JSON array of [type, at, task_id, actor, payload].
INSERT INTO event (type, at, task_seq, task_id, actor, payload)
SELECT value ->> 0, value ->> 1, (SELECT seq FROM task WHERE id = value ->> 2), value ->> 2, value ->> 3, value -> 4
  FROM jsonb_each(:rows)
