-- Tasks ended: forget the edges that are met by it. :rows is a JSON array of [on_seq, completed].
DELETE FROM dependency
 WHERE (on_seq, task_seq) IN (
    SELECT d.on_seq, d.task_seq
      FROM jsonb_each(:rows) AS c
      JOIN dependency d ON d.on_seq = c.value ->> 0
     WHERE c.value ->> 1 OR d.tolerant)
RETURNING task_seq
