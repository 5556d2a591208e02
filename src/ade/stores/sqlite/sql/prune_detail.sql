-- With the task goes its detail. :seqs is a JSON array.
DELETE FROM task_detail WHERE seq IN (SELECT value FROM json_each(:seqs))
