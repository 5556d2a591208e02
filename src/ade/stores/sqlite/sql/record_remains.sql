-- What is left of a task whose detail or outcome cannot be read.
SELECT json_object(
           'id', id, 'queue', queue, 'name', name, 'status', status, 'priority', priority, 'run_after', run_after,
           'deadline', deadline, 'version', version, 'generation', generation, 'attempt', attempt, 'run_id', run_id,
           'worker_id', worker_id, 'lease_until', lease_until, 'waiting_on', waiting_on, 'created_at', created_at,
           'updated_at', updated_at, 'started_at', started_at, 'finished_at', finished_at, 'parent_id', parent_id,
           'idempotency_key', idempotency_key, 'args_digest', args_digest, 'concurrency_key', concurrency_key,
           'needs', iif(needs IS NULL, json_array(), json('["' || replace(needs, ',', '","') || '"]')))
  FROM task WHERE seq = :seq
