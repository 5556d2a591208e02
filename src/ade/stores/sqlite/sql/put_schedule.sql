-- Create or replace a schedule.
INSERT INTO schedule (name, schedule, next_at, paused) VALUES (:name, :schedule, :next_at, :paused)
    ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule, next_at = excluded.next_at, paused = excluded.paused
