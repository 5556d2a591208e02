-- The state of a rate limit.
SELECT rate_full_at FROM definition WHERE name = :name
