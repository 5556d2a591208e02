-- Forget what a request asked for. :rows is a JSON array of [namespace, resource, granted, rank, seq, request_id].
DELETE FROM lock_item
 WHERE (namespace, resource, granted, rank, seq, request_id) IN (
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM jsonb_each(:rows))
