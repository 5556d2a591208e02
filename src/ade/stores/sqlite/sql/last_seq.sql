-- The newest event.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)
