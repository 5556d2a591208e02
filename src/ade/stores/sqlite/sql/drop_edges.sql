-- Tasks that ended wait for nothing any more. :seqs is a JSON array.
DELETE FROM dependency WHERE task_seq IN (SELECT value FROM json_each(:seqs))
