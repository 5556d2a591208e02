-- Remove documents that have expired; answers their kinds and versions. :rows is a JSON array of [kind, id].
DELETE FROM document
 WHERE (kind, id) IN (SELECT value ->> 0, value ->> 1 FROM jsonb_each(:rows)) AND expires_at <= :now
RETURNING kind, version
