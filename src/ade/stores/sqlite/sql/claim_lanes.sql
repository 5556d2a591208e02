-- The lanes (queue and name) with claimable tasks in queues that are not paused, as one JSON array of [queue, name].
SELECT json_group_array(json_array(queue, name))
  FROM (SELECT DISTINCT t.queue, t.name
          FROM tally t
         WHERE t.status IN ('pending', 'stalled') AND t.count > 0
           AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.name = t.queue AND q.paused))
