-- Dependencies between tasks. A row exists as long as a task waits: it is deleted when the other task completes, and
-- marked as broken when the other task ends in another way.

-- name: dependencies.insert
-- Insert dependencies. :rows is a JSON array of [on_seq, task_seq, tolerant, broken].
INSERT INTO dependency (on_seq, task_seq, tolerant, broken)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM jsonb_each(:rows)

-- name: dependencies.any
-- Check whether any task waits for another one.
SELECT EXISTS (SELECT 1 FROM dependency)

-- name: dependencies.meet
-- Tasks ended: delete the dependencies that this meets. :rows is a JSON array of [on_seq, completed].
DELETE FROM dependency
 WHERE (on_seq, task_seq) IN (
    SELECT d.on_seq, d.task_seq
      FROM jsonb_each(:rows) AS c
      JOIN dependency d ON d.on_seq = c.value ->> 0
     WHERE c.value ->> 1 OR d.tolerant)
RETURNING task_seq

-- name: dependencies.break
-- Tasks ended without completing: mark the dependencies on them as broken. :rows is a JSON array of seqs.
UPDATE dependency SET broken = 1 WHERE on_seq IN (SELECT value FROM jsonb_each(:rows)) RETURNING task_seq

-- name: dependencies.repair
-- Tasks that had ended run again: dependencies on them are no longer broken. :rows is a JSON array of seqs.
UPDATE dependency SET broken = 0 WHERE on_seq IN (SELECT value FROM json_each(:rows)) RETURNING task_seq

-- name: dependencies.rebuild
-- Tasks that had ended run again: they wait again for tasks that have not ended. :seqs is a JSON array.
INSERT OR IGNORE INTO dependency (on_seq, task_seq, tolerant, broken)
SELECT o.seq, r.value, coalesce(d.detail ->> '$.after_failure', 'cancel') = 'run', 0
  FROM json_each(:seqs) AS r
  JOIN task_detail d ON d.seq = r.value AND json_valid(d.detail)
  JOIN json_each(d.detail, '$.depends_on') AS n
  JOIN task o ON o.id = n.value
 WHERE o.status NOT IN ('completed', 'failed', 'rejected', 'cancelled')
RETURNING task_seq

-- name: dependencies.delete
-- Tasks ended: delete their dependencies on other tasks. :seqs is a JSON array.
DELETE FROM dependency WHERE task_seq IN (SELECT value FROM json_each(:seqs))

-- name: dependencies.clear_waiting
-- Tasks ended: reset how many tasks they wait for. :seqs is a JSON array.
UPDATE task SET waiting_on = 0 WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: dependencies.block_tasks
-- Block tasks that wait again. :rows is a JSON array of [seq, number of tasks to wait for].
UPDATE task SET waiting_on = c.value ->> 1, stage = 'blocked'
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0

-- name: dependencies.unblock_tasks
-- Count down how many tasks each one waits for, and release those that wait for none. :rows is a JSON array of [seq,
-- met].
UPDATE task
   SET waiting_on = waiting_on - c.met,
       stage = CASE WHEN stage IS NOT 'blocked' OR waiting_on > c.met THEN stage
                    WHEN run_after > :now THEN 'delayed'
                    ELSE 'ready' END
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS met FROM jsonb_each(:rows)) AS c
 WHERE task.seq = c.seq

-- name: dependencies.due_broken
-- List tasks with a dependency that cannot complete, with the ids of those dependencies. Drafts are left to their authors.
SELECT t.seq, CAST(r.json AS BLOB),
       (SELECT json_group_array(o.id) FROM dependency b JOIN task o ON o.seq = b.on_seq
         WHERE b.task_seq = t.seq AND b.broken)
  FROM (SELECT DISTINCT d.task_seq
          FROM dependency d INDEXED BY dependency_broken
          JOIN task w ON w.seq = d.task_seq
           AND (w.stage IS NOT NULL OR w.status IN ('submitted', 'reviewing', 'approved'))
         WHERE d.broken = 1 LIMIT :limit) AS d
  JOIN task t ON t.seq = d.task_seq
  JOIN record r ON r.seq = t.seq
