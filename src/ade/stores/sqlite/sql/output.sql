-- Lines that runs wrote with `ctx.log`.

-- name: output.append
-- Append lines. :rows is a JSON array of [task_id, run_id, attempt, at, stream, text].
INSERT INTO output (task_seq, run_id, attempt, at, stream, text)
SELECT t.seq, l.value ->> 1, l.value ->> 2, l.value ->> 3, l.value ->> 4, l.value ->> 5
  FROM jsonb_each(:rows) AS l JOIN task t ON t.id = l.value ->> 0 ORDER BY l.key

-- name: output.count
-- Count the lines a run has written.
SELECT count(*) FROM output o JOIN task t ON t.seq = o.task_seq WHERE t.id = :task_id AND o.run_id = :run_id

-- name: output.read
-- Read the lines of a task after a position.
SELECT o.seq, o.run_id, o.attempt, o.at, o.stream, o.text
  FROM task t JOIN output o ON o.task_seq = t.seq
 WHERE t.id = :task_id AND o.seq > :after ORDER BY o.seq LIMIT :limit

-- name: output.prune
-- Delete the output of pruned tasks. :seqs is a JSON array.
DELETE FROM output WHERE task_seq IN (SELECT value FROM json_each(:seqs))
