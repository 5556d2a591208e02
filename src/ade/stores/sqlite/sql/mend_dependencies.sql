-- Tasks that had ended run again: what waits for them may hope again. :rows is a JSON array of seqs.
UPDATE dependency SET broken = 0 WHERE on_seq IN (SELECT value FROM json_each(:rows)) RETURNING task_seq
