-- A running task with this concurrency key ended: the next one in line may go.
UPDATE task SET stage = 'ready'
 WHERE seq = (SELECT seq FROM task INDEXED BY task_parked
               WHERE stage = 'parked' AND name = :name AND concurrency_key = :key
               ORDER BY priority, seq LIMIT 1)
