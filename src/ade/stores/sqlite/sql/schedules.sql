-- All schedules.
SELECT schedule FROM schedule ORDER BY name
