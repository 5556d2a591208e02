-- Inboxes a consumer may take from now, as rows of since and id, those that wait longest first.
SELECT since, id FROM inbox
 WHERE consumer = :consumer AND since IS NOT NULL AND (held_until IS NULL OR held_until <= :steady)
 ORDER BY since, id LIMIT :limit
