-- How many tasks run for each of these concurrency keys. :rows is a JSON array of [name, key].
SELECT k.value ->> 0, k.value ->> 1,
       (SELECT count(*) FROM task INDEXED BY task_key_running
         WHERE status = 'running' AND concurrency_key IS NOT NULL
           AND name = k.value ->> 0 AND concurrency_key = k.value ->> 1)
  FROM jsonb_each(:rows) AS k
