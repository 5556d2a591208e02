-- When the next delayed task becomes due.
SELECT min(run_after) FROM task INDEXED BY task_delayed WHERE stage = 'delayed'
