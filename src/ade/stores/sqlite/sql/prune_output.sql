-- With the task goes its output. :seqs is a JSON array.
DELETE FROM output WHERE task_seq IN (SELECT value FROM json_each(:seqs))
