-- Final tasks that ended long ago, oldest first; dead letters nobody has dealt with only if they ended before :letters.
SELECT t.seq, CAST(r.json AS BLOB) FROM task t INDEXED BY task_finished JOIN record r ON r.seq = t.seq
 WHERE t.finished_at IS NOT NULL AND t.finished_at < :moment
   AND t.status IN ('completed', 'failed', 'rejected', 'cancelled')
   AND (t.status <> 'failed' OR t.finished_at < :letters OR t.discarded)
 ORDER BY t.finished_at LIMIT :limit
