-- Move a schedule on, if nobody else has moved, paused or changed it.
UPDATE schedule SET schedule = :schedule, next_at = :next_at, paused = :paused
 WHERE name = :name AND next_at = :seen_next_at AND paused = :seen_paused
   AND coalesce(schedule ->> '$.updated_at', 0) = :seen_updated_at
RETURNING name
