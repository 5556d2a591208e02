-- Documents, as rows of kind and id, that have expired.
SELECT kind, id FROM document WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
