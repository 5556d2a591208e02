-- Until when each duty is taken.
SELECT name, until FROM duty ORDER BY name
