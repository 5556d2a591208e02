-- Write what requests ask for. :rows is a JSON array of [namespace, resource, granted, rank, seq, request_id].
INSERT INTO lock_item (namespace, resource, granted, rank, seq, request_id)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM jsonb_each(:rows)
