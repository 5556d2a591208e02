-- Maintenance jobs: which process performs each of them.

-- name: jobs.claim
-- Claim a job, or extend the claim. A job that another process holds is left alone.
INSERT INTO duty (name, holder, until) VALUES (:duty, :holder, :until)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE duty.holder = excluded.holder OR duty.until < :steady
RETURNING holder

-- name: jobs.list
-- List until when each job is claimed.
SELECT name, until FROM duty ORDER BY name
