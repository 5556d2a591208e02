-- Schedules whose time has come.
SELECT schedule FROM schedule WHERE NOT paused AND next_at <= :now ORDER BY next_at
