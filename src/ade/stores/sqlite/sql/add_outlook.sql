-- What new tasks must know first, as one JSON array of three: the seq the next one gets; those of the queues that have
-- an admission limit, as [queue, limit, unfinished tasks]; and which of the ids exist, as [id, seq, status]. :queues
-- and :ids are JSON arrays; :usual is the limit of queues that set none of their own, or NULL.
SELECT json_array(
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task'), 0) + 1,
    json((SELECT json_group_array(json_array(n.value, coalesce(q.max_depth, :usual),
                     coalesce((SELECT sum(count) FROM tally
                                WHERE queue = n.value
                                  AND status NOT IN ('completed', 'failed', 'rejected', 'cancelled')), 0)))
            FROM json_each(:queues) AS n
            LEFT JOIN queue q ON q.name = n.value
           WHERE coalesce(q.max_depth, :usual) IS NOT NULL)),
    json((SELECT json_group_array(json_array(t.id, t.seq, t.status))
            FROM json_each(:ids) AS i
            JOIN task t ON t.id = i.value)))
