-- The head of one lane of tasks that ask for the same, as claim_lane.sql has those of tasks that ask for nothing.
SELECT json_group_array(json_array(priority, seq, concurrency_key, status, worker_id))
  FROM (SELECT priority, seq, concurrency_key, status, worker_id
          FROM task INDEXED BY task_asking
         WHERE stage = 'ready' AND needs IS NOT NULL AND queue = :queue AND name = :name AND needs = :needs
           AND (priority, seq) > (:priority, :seq)
         ORDER BY priority, seq
         LIMIT :limit)
