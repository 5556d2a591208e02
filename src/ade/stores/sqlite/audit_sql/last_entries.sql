-- The last entries, newest first.
SELECT seq, body, hash FROM entry ORDER BY seq DESC LIMIT :limit
