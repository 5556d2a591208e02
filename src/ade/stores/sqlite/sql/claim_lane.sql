-- The head of one lane behind a place in it, as one JSON array of [priority, seq, concurrency_key, status, worker_id].
SELECT json_group_array(json_array(priority, seq, concurrency_key, status, worker_id))
  FROM (SELECT priority, seq, concurrency_key, status, worker_id
          FROM task INDEXED BY task_ready
         WHERE stage = 'ready' AND needs IS NULL AND queue = :queue AND name = :name
           AND (priority, seq) > (:priority, :seq)
         ORDER BY priority, seq
         LIMIT :limit)
