-- Remove final tasks that nobody waits for. :ids is a JSON array.
DELETE FROM task
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND status IN ('completed', 'failed', 'rejected', 'cancelled')
   AND NOT EXISTS (SELECT 1 FROM dependency d WHERE d.on_seq = task.seq)
RETURNING seq, id, queue, name, status
