-- Entries after a seq, in order.
SELECT seq, body, hash FROM ade_audit WHERE seq > %(after)s ORDER BY seq LIMIT %(limit)s
