-- Running tasks of one name and concurrency key.
SELECT id FROM task INDEXED BY task_key_running
 WHERE status = 'running' AND concurrency_key IS NOT NULL AND name = :name AND concurrency_key = :key ORDER BY seq
