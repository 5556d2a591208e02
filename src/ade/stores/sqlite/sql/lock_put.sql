-- Write requests. :rows is a JSON array of [id, namespace, owner, granted, lease_until, request, called].
INSERT INTO lock_request (id, namespace, owner, granted, lease_until, request, called)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value -> 5, value ->> 6 FROM jsonb_each(:rows) WHERE true
    ON CONFLICT (id) DO UPDATE
   SET granted = excluded.granted, lease_until = excluded.lease_until, request = excluded.request,
       called = excluded.called
