-- A final task has an end, a live one has none.
SELECT 'task ' || id || ' is ' || status || ' with finished_at ' || json_quote(finished_at) FROM task
 WHERE (finished_at IS NOT NULL) <> (status IN ('completed', 'failed', 'rejected', 'cancelled')) LIMIT 5
