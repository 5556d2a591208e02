-- Replaying the event log ends where the record stands.
SELECT 'task ' || t.id || ' is ' || t.status || ', but its last event is ' || e.type
  FROM task t
  JOIN event e ON e.seq = (SELECT max(l.seq) FROM event l WHERE l.task_seq = t.seq
                              AND l.type NOT IN ('alert', 'task.reclaimed', 'task.dlq', 'task.discarded')
                              AND l.type NOT GLOB 'lock.*')
 WHERE t.status <> CASE e.type
         WHEN 'task.created' THEN e.payload ->> '$.status'
         WHEN 'task.claimed' THEN 'running' WHEN 'task.succeeded' THEN 'completed'
         WHEN 'task.retry_scheduled' THEN 'pending' WHEN 'task.released' THEN 'pending'
         WHEN 'task.deferred' THEN 'pending' WHEN 'task.recalled' THEN 'pending'
         WHEN 'task.replayed' THEN 'pending' WHEN 'task.queued' THEN 'pending'
         WHEN 'task.stalled' THEN 'stalled' WHEN 'task.failed' THEN 'failed'
         WHEN 'task.cancelled' THEN 'cancelled' WHEN 'task.rejected' THEN 'rejected'
         ELSE t.status END LIMIT 5
