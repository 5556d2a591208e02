-- New tasks, the wide part. :rows is a JSON array of [seq, detail].
INSERT INTO task_detail (seq, detail)
SELECT value ->> 0, value -> 1 FROM jsonb_each(:rows)
