-- Running tasks whose lease ran out, the longest silent first.
SELECT t.seq, CAST(r.json AS BLOB) FROM task t INDEXED BY task_lease JOIN record r ON r.seq = t.seq
 WHERE t.status = 'running' AND t.lease_until < :steady ORDER BY t.lease_until LIMIT :limit
