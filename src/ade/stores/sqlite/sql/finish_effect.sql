-- The effect is done.
UPDATE effect SET done = 1, answer = :answer, at = :now WHERE key = :key AND run_id = :run_id RETURNING key
