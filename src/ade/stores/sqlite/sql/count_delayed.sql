-- Tasks that are not due yet, from their index alone.
SELECT count(*) FROM task INDEXED BY task_delayed WHERE stage = 'delayed'
