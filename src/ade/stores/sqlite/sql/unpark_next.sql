-- A running task with this concurrency key ended: the next one may go, the first of each queue, because not every
-- worker serves every queue. The claim decides which; it parks the others again.
UPDATE task SET stage = 'ready'
 WHERE seq IN (SELECT (SELECT p.seq FROM task p INDEXED BY task_parked
                        WHERE p.stage = 'parked' AND p.name = :name AND p.concurrency_key = :key AND p.queue = q.queue
                        ORDER BY p.priority, p.seq LIMIT 1)
                 FROM (SELECT DISTINCT queue FROM tally
                        WHERE name = :name AND status IN ('pending', 'stalled') AND count > 0) AS q)
