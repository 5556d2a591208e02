-- Whoever waits for another task waits for one that may still complete, or knows that it never will.
SELECT 'task ' || w.id || ' waits for ' || coalesce(o.id || ', which is ' || o.status, 'a task that is gone')
  FROM dependency d JOIN task w ON w.seq = d.task_seq LEFT JOIN task o ON o.seq = d.on_seq
 WHERE o.seq IS NULL OR o.seq = w.seq OR o.status = 'completed'
    OR d.broken <> (o.status IN ('failed', 'rejected', 'cancelled')) OR (d.broken AND d.tolerant) LIMIT 5
