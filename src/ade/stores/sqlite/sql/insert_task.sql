-- New tasks, the narrow part. :rows is a JSON array of arrays, see codec.new_row.
INSERT INTO task (seq, id, queue, name, status, stage, priority, run_after, deadline, waiting_on, created_at,
                  updated_at, parent_id, idempotency_key, args_digest, concurrency_key)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
       value ->> 8, value ->> 9, value ->> 10, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14
  FROM jsonb_each(:rows)
