-- The ledger of `ctx.once`.

-- name: effects.begin
-- Enter an effect, unless the ledger contains it.
INSERT INTO effect (key, run_id, done, at) VALUES (:key, :run_id, 0, :now) ON CONFLICT (key) DO NOTHING

-- name: effects.get
-- Read an entry of the ledger.
SELECT run_id, done, answer, at FROM effect WHERE key = :key

-- name: effects.finish
-- Mark an effect as done, if this run began it.
UPDATE effect SET done = 1, answer = :answer, at = :now WHERE key = :key AND run_id = :run_id RETURNING key

-- name: effects.delete
-- Delete an entry of the ledger.
DELETE FROM effect WHERE key = :key

-- name: effects.prune
-- Delete effects that were done long ago. Effects with an unknown outcome stay until an operator settles them.
DELETE FROM effect
 WHERE key IN (SELECT key FROM effect INDEXED BY effect_done WHERE done = 1 AND at < :before ORDER BY at LIMIT :limit)
RETURNING key
