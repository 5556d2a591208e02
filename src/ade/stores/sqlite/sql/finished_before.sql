-- Final tasks that ended long ago, oldest first.
SELECT t.seq, CAST(r.json AS BLOB) FROM task t INDEXED BY task_finished JOIN record r ON r.seq = t.seq
 WHERE t.finished_at IS NOT NULL AND t.finished_at < :moment
   AND t.status IN ('completed', 'failed', 'rejected', 'cancelled')
 ORDER BY t.finished_at LIMIT :limit
