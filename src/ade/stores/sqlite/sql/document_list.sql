-- All documents of a kind that have not expired, by id.
SELECT id, version, expires_at, body FROM document
 WHERE kind = :kind AND (expires_at IS NULL OR expires_at > :now)
 ORDER BY id
