-- Move a schedule on, if nobody else has.
UPDATE schedule SET schedule = :schedule, next_at = :next_at, paused = :paused
 WHERE name = :name AND next_at = :seen_next_at RETURNING name
