-- The last entries, newest first.
SELECT seq, body, hash FROM ade_audit ORDER BY seq DESC LIMIT %(limit)s
