-- How many tasks of a queue ended since a moment, counted up to 1000.
SELECT count(*) FROM (
    SELECT 1 FROM task INDEXED BY task_finished WHERE finished_at >= :since AND queue = :queue LIMIT 1000)
