-- Heads of inboxes by id, with how many items each has, since when the oldest waits, and when it was written.
SELECT head, items, since, written_at FROM inbox WHERE id > :after ORDER BY id LIMIT :limit
