-- Forget rates that are still all free since this moment. :keys is a JSON array.
DELETE FROM document_rate WHERE key IN (SELECT value FROM json_each(:keys)) AND full_at <= :since RETURNING key
