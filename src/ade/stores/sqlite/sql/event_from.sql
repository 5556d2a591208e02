-- The first event at or behind a place in the log.
SELECT seq, at FROM event WHERE seq >= :seq ORDER BY seq LIMIT 1
