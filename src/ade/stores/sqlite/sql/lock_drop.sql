-- Forget requests. :ids is a JSON array.
DELETE FROM lock_request WHERE id IN (SELECT value FROM json_each(:ids))
