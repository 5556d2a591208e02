-- The version of a document, expired or not, and 1 if it has expired.
SELECT version, expires_at IS NOT NULL AND expires_at <= :now FROM document WHERE kind = :kind AND id = :id
