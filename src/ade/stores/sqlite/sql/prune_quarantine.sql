-- With the task goes its quarantine. :ids is a JSON array.
DELETE FROM quarantine WHERE task_id IN (SELECT value FROM json_each(:ids))
