-- With the task goes its outcome. :seqs is a JSON array.
DELETE FROM task_outcome WHERE seq IN (SELECT value FROM json_each(:seqs))
