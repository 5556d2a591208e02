-- Append events. :rows is a JSON array of [type, at, task_seq, task_id, actor, payload].
INSERT INTO event (type, at, task_seq, task_id, actor, payload)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value -> 5 FROM jsonb_each(:rows)
