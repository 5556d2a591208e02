-- Those of the queues that have an admission limit, and how many unfinished tasks they hold. :queues is a JSON array;
-- :usual is the limit of queues that set none of their own, or NULL.
SELECT n.value, coalesce(q.max_depth, :usual),
       coalesce((SELECT sum(count) FROM tally
                  WHERE queue = n.value AND status NOT IN ('completed', 'failed', 'rejected', 'cancelled')), 0)
  FROM json_each(:queues) AS n
  LEFT JOIN queue q ON q.name = n.value
 WHERE coalesce(q.max_depth, :usual) IS NOT NULL
