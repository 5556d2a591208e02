-- Entries after a seq, in order.
SELECT seq, body, hash FROM entry WHERE seq > :after ORDER BY seq LIMIT :limit
