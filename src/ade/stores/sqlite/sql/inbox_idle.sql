-- Inboxes that are empty and were not written since :before, the oldest first.
SELECT id FROM inbox WHERE since IS NULL AND written_at < :before ORDER BY written_at LIMIT :limit
