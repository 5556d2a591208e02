-- The ledger of `ctx.once`.

-- name: effects.begin
-- Enter an effect, unless the ledger contains it.
INSERT INTO effect (key, run_id, task_id, done, at) VALUES (:key, :run_id, :task_id, 0, :now) ON CONFLICT (key) DO NOTHING

-- name: effects.get
-- Read an entry of the ledger.
SELECT run_id, task_id, done, answer, at FROM effect WHERE key = :key

-- name: effects.finish
-- Mark an effect as done, if this run began it.
UPDATE effect SET done = 1, answer = :answer, at = :now WHERE key = :key AND run_id = :run_id RETURNING key

-- name: effects.delete
-- Delete an entry of the ledger.
DELETE FROM effect WHERE key = :key

-- name: effects.retain
-- Of the effects that were done long ago, mark those whose tasks exist, so that the next call of effects.prune skips them.
UPDATE effect SET at = :now
 WHERE key IN (SELECT key FROM effect INDEXED BY effect_done WHERE done = 1 AND at < :before ORDER BY at LIMIT :limit)
   AND EXISTS (SELECT 1 FROM task WHERE task.id = effect.task_id)
RETURNING key

-- name: effects.prune
-- Delete effects that were done long ago and whose tasks are gone. Effects with an unknown outcome stay until an operator
-- settles them.
DELETE FROM effect
 WHERE key IN (SELECT key FROM effect INDEXED BY effect_done WHERE done = 1 AND at < :before ORDER BY at LIMIT :limit)
   AND NOT EXISTS (SELECT 1 FROM task WHERE task.id = effect.task_id)
RETURNING key
