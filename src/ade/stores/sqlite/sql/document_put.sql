-- Write a document. Its version is one above its own, or above all of its kind that are gone if there is none.
INSERT INTO document (kind, id, version, expires_at, body)
VALUES (:kind, :id, 1 + coalesce((SELECT version FROM document_mark WHERE kind = :kind), 0), :expires_at, :body)
    ON CONFLICT (kind, id) DO UPDATE
   SET version = document.version + 1, expires_at = excluded.expires_at, body = excluded.body
RETURNING version
