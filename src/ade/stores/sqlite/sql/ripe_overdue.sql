-- Tasks nobody started before their deadline.
SELECT t.seq, CAST(r.json AS BLOB) FROM task t INDEXED BY task_deadline JOIN record r ON r.seq = t.seq
 WHERE t.deadline IS NOT NULL AND t.stage IS NOT NULL AND t.deadline <= :now ORDER BY t.deadline LIMIT :limit
