-- The lanes of tasks that ask for capabilities, as one JSON array of [queue, name, needs]; none of paused
-- queues.
SELECT json_group_array(json_array(l.queue, l.name, l.needs))
  FROM asking_lane AS l
 WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.name = l.queue AND q.paused)
