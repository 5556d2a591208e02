-- Documents: accounts, rules, and settings, each stored whole under a kind and an id.

-- name: documents.get
-- Get documents of a kind that have not expired, as rows of id, version, expires_at, and body. :ids is a JSON array.
SELECT id, version, expires_at, body FROM document
 WHERE kind = :kind AND id IN (SELECT value FROM json_each(:ids)) AND (expires_at IS NULL OR expires_at > :now)

-- name: documents.list
-- List all documents of a kind that have not expired, by id.
SELECT id, version, expires_at, body FROM document
 WHERE kind = :kind AND (expires_at IS NULL OR expires_at > :now)
 ORDER BY id

-- name: documents.get_version
-- Read the version of a document, expired or not, and 1 if it has expired.
SELECT version, expires_at IS NOT NULL AND expires_at <= :now FROM document WHERE kind = :kind AND id = :id

-- name: documents.put
-- Write a document. Its version is one above its previous version, or above every deleted version of its kind if it is
-- new.
INSERT INTO document (kind, id, version, expires_at, body)
VALUES (:kind, :id, 1 + coalesce((SELECT version FROM document_mark WHERE kind = :kind), 0), :expires_at, :body)
    ON CONFLICT (kind, id) DO UPDATE
   SET version = document.version + 1, expires_at = excluded.expires_at, body = excluded.body
RETURNING version

-- name: documents.remove
-- Delete a document; returns its version.
DELETE FROM document WHERE kind = :kind AND id = :id RETURNING version

-- name: documents.mark_version
-- Record the version of a deleted document.
INSERT INTO document_mark (kind, version) VALUES (:kind, :version)
    ON CONFLICT (kind) DO UPDATE SET version = max(version, excluded.version)

-- name: documents.list_expired
-- List expired documents, as rows of kind and id.
SELECT kind, id FROM document WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit

-- name: documents.delete_expired
-- Delete expired documents; returns their kinds and versions. :rows is a JSON array of [kind, id].
DELETE FROM document
 WHERE (kind, id) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(:rows)) AND expires_at <= :now
RETURNING kind, version

-- name: documents.get_rate
-- Read the state of a rate limit.
SELECT full_at FROM document_rate WHERE key = :key

-- name: documents.put_rate
-- Write the state of a rate limit.
INSERT INTO document_rate (key, full_at) VALUES (:key, :full_at)
    ON CONFLICT (key) DO UPDATE SET full_at = excluded.full_at

-- name: documents.list_idle_rates
-- List the keys of rate limits that have been unused since a point in time.
SELECT key FROM document_rate WHERE full_at <= :since LIMIT :limit

-- name: documents.delete_rates
-- Delete rate limits that are still unused since that point in time. :keys is a JSON array.
DELETE FROM document_rate WHERE key IN (SELECT value FROM json_each(:keys)) AND full_at <= :since RETURNING key
