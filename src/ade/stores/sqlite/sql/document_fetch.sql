-- Documents of a kind that have not expired, as rows of id, version, expires_at and body. :ids is a JSON array.
SELECT id, version, expires_at, body FROM document
 WHERE kind = :kind AND id IN (SELECT value FROM json_each(:ids)) AND (expires_at IS NULL OR expires_at > :now)
