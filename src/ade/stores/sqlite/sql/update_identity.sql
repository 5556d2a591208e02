-- A draft was edited in what its line depends on. :rows is a JSON array, see codec.identity_row.
UPDATE task
   SET queue = c.value ->> 1, name = c.value ->> 2, parent_id = c.value ->> 3, idempotency_key = c.value ->> 4,
       args_digest = c.value ->> 5, concurrency_key = c.value ->> 6, needs = c.value ->> 7
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0
