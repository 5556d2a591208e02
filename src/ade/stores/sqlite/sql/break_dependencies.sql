-- Tasks ended without completing: what still waits for them never will be met. :rows is a JSON array of seqs.
UPDATE dependency SET broken = 1 WHERE on_seq IN (SELECT value FROM jsonb_each(:rows)) RETURNING task_seq
