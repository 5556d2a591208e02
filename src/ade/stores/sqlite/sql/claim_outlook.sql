-- What a claim must know first, as one JSON array of three: whether delayed tasks are due; the lanes [queue, name] with
-- claimable tasks in queues that are not paused; and the names with limits as [definition, state of the rate limit,
-- how many run now].
SELECT json_array(
    EXISTS (SELECT 1 FROM task INDEXED BY task_delayed WHERE stage = 'delayed' AND run_after <= :now),
    json((SELECT json_group_array(json_array(queue, name))
            FROM (SELECT DISTINCT lane.queue, lane.name
                    FROM tally AS lane
                   WHERE lane.status IN ('pending', 'stalled') AND lane.count > 0
                     AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.name = lane.queue AND q.paused)))),
    json((SELECT json_group_array(json_array(d.definition, d.rate_full_at,
                     coalesce((SELECT sum(count) FROM tally WHERE name = d.name AND status = 'running'), 0)))
            FROM definition d
           WHERE d.limited)))
