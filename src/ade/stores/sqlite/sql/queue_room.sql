-- Queues with an admission limit, and how many unfinished tasks they hold.
SELECT q.name, q.max_depth,
       coalesce((SELECT sum(count) FROM tally
                  WHERE queue = q.name AND status NOT IN ('completed', 'failed', 'rejected', 'cancelled')), 0)
  FROM queue q
 WHERE q.max_depth IS NOT NULL
