-- The seq the next new task gets.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task'), 0) + 1
