-- Who waits for whom. :rows is a JSON array of [on_seq, task_seq, tolerant, broken].
INSERT INTO dependency (on_seq, task_seq, tolerant, broken)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM jsonb_each(:rows)
