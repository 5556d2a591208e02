-- Forget inboxes that are still empty and were not written since :before. :ids is a JSON array.
DELETE FROM inbox WHERE id IN (SELECT value FROM json_each(:ids)) AND since IS NULL AND written_at < :before RETURNING id
