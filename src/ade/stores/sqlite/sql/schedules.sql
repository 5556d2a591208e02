-- Cron schedules and their next firing.

-- name: schedules.put
-- Create or replace a schedule.
INSERT INTO schedule (name, schedule, next_at, paused) VALUES (:name, :schedule, :next_at, :paused)
    ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule, next_at = excluded.next_at, paused = excluded.paused

-- name: schedules.list
-- List all schedules.
SELECT schedule FROM schedule ORDER BY name

-- name: schedules.list_due
-- List schedules that are due.
SELECT schedule FROM schedule WHERE NOT paused AND next_at <= :now ORDER BY next_at

-- name: schedules.advance
-- Set the next firing of a schedule, unless it was advanced, paused, or changed since it was read.
UPDATE schedule SET schedule = :schedule, next_at = :next_at, paused = :paused
 WHERE name = :name AND next_at = :seen_next_at AND paused = :seen_paused
   AND coalesce(schedule ->> '$.updated_at', 0) = :seen_updated_at
RETURNING name

-- name: schedules.remove
-- Delete a schedule.
DELETE FROM schedule WHERE name = :name RETURNING name
