-- How far a rate is used up.
SELECT full_at FROM document_rate WHERE key = :key
