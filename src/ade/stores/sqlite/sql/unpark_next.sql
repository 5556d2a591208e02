-- A running task with this concurrency key ended: the next one may go, the first of each queue and of those that ask
-- for the same capabilities, because not every worker serves all of them. The claim decides which; it parks the others
-- again.
UPDATE task SET stage = 'ready'
 WHERE seq IN (
    WITH RECURSIVE first (seq) AS (
        SELECT (SELECT seq FROM task INDEXED BY task_parked
                 WHERE stage = 'parked' AND name = :name AND concurrency_key = :key
                 ORDER BY queue, needs, priority, seq LIMIT 1)
         UNION ALL
        SELECT coalesce((SELECT p.seq FROM task p INDEXED BY task_parked
                          WHERE p.stage = 'parked' AND p.name = :name AND p.concurrency_key = :key
                            AND p.queue = t.queue AND p.needs > coalesce(t.needs, '')
                          ORDER BY p.needs, p.priority, p.seq LIMIT 1),
                        (SELECT p.seq FROM task p INDEXED BY task_parked
                          WHERE p.stage = 'parked' AND p.name = :name AND p.concurrency_key = :key
                            AND p.queue > t.queue
                          ORDER BY p.queue, p.needs, p.priority, p.seq LIMIT 1))
          FROM first JOIN task t ON t.seq = first.seq)
    SELECT seq FROM first WHERE seq IS NOT NULL)
