-- What became of the tasks of runs that are no longer running. :rows is a JSON array of [run_id, task_id].
SELECT l.value ->> 0, t.status FROM jsonb_each(:rows) AS l LEFT JOIN task t ON t.id = l.value ->> 1
