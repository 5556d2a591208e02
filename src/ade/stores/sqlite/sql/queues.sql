-- Queues and the counts of their tasks by status. Every commit updates the counts, so reading them never counts tasks.

-- name: queues.list
-- List every queue that is configured or used.
SELECT n.name, coalesce(q.paused, 0), q.max_depth
  FROM (SELECT name FROM queue UNION SELECT queue FROM tally) AS n LEFT JOIN queue q ON q.name = n.name
 ORDER BY n.name

-- name: queues.configure
-- Create or change a queue.
INSERT INTO queue (name, paused, max_depth) VALUES (:name, :paused, :max_depth)
    ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, max_depth = excluded.max_depth

-- name: queues.status_counts
-- Read the counts of tasks by queue, name, and status.
SELECT queue, name, status, count FROM tally WHERE count <> 0 ORDER BY queue, name, status

-- name: queues.update_status_counts
-- Add to the counts. :rows is a JSON array of [queue, name, status, difference].
INSERT INTO tally (queue, name, status, count)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM jsonb_each(:rows) WHERE true
    ON CONFLICT (queue, name, status) DO UPDATE SET count = count + excluded.count

-- name: queues.delete_empty_counts
-- Delete the counts of lanes without tasks.
DELETE FROM tally WHERE count = 0

-- name: queues.oldest_ready
-- Read since when the oldest ready task of each lane and priority has been waiting.
SELECT l.queue, (SELECT max(t.run_after, t.created_at) FROM task t INDEXED BY task_ready
                  WHERE t.stage = 'ready' AND t.needs IS NULL AND t.queue = l.queue AND t.name = l.name
                    AND t.priority = p.value
                  ORDER BY t.seq LIMIT 1)
  FROM (SELECT DISTINCT queue, name FROM tally WHERE status IN ('pending', 'stalled') AND count > 0) AS l,
       json_each('[0,1,2,3,4,5,6,7,8,9]') AS p
 UNION ALL
SELECT l.queue, (SELECT max(t.run_after, t.created_at) FROM task t INDEXED BY task_asking
                  WHERE t.stage = 'ready' AND t.needs IS NOT NULL AND t.queue = l.queue AND t.name = l.name
                    AND t.needs = l.needs AND t.priority = p.value
                  ORDER BY t.seq LIMIT 1)
  FROM asking_lane AS l, json_each('[0,1,2,3,4,5,6,7,8,9]') AS p

-- name: queues.count_ahead
-- Count the ready tasks of the same queue that come before a task, up to :limit, lane by lane.
SELECT count(*) FROM (
    SELECT 1
      FROM task me
     CROSS JOIN (SELECT DISTINCT queue, name FROM tally WHERE status IN ('pending', 'stalled') AND count > 0) AS l
     CROSS JOIN task t INDEXED BY task_ready
     WHERE me.id = :id AND l.queue = me.queue
       AND t.stage = 'ready' AND t.needs IS NULL AND t.queue = l.queue AND t.name = l.name
       AND (t.priority, t.seq) < (me.priority, me.seq)
     UNION ALL
    SELECT 1
      FROM task me
     CROSS JOIN asking_lane AS l
     CROSS JOIN task t INDEXED BY task_asking
     WHERE me.id = :id AND l.queue = me.queue
       AND t.stage = 'ready' AND t.needs IS NOT NULL AND t.queue = l.queue AND t.name = l.name
       AND t.needs = l.needs AND (t.priority, t.seq) < (me.priority, me.seq)
     LIMIT :limit)
