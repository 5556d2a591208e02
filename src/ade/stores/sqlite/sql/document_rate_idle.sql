-- Keys whose rate has been all free since this moment.
SELECT key FROM document_rate WHERE full_at <= :since LIMIT :limit
