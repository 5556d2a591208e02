-- Remove a document; answers its version.
DELETE FROM document WHERE kind = :kind AND id = :id RETURNING version
