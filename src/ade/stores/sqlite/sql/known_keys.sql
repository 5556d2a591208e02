-- Tasks that already have one of these idempotency keys. :rows is a JSON array of [queue, name, key].
SELECT t.seq, CAST(r.json AS BLOB)
  FROM jsonb_each(:rows) AS k
  JOIN task t ON t.idempotency_key IS NOT NULL AND t.queue = k.value ->> 0 AND t.name = k.value ->> 1
             AND t.idempotency_key = k.value ->> 2
  JOIN record r ON r.seq = t.seq
