-- Write decided changes, the wide part. :rows is a JSON array of [seq, detail].
UPDATE task_detail SET detail = c.value -> 1 FROM jsonb_each(:rows) AS c WHERE task_detail.seq = c.value ->> 0
