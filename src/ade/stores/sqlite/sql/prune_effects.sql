-- Forget effects that were done long ago. What is unknown stays until somebody settles it.
DELETE FROM effect
 WHERE key IN (SELECT key FROM effect INDEXED BY effect_done WHERE done = 1 AND at < :before ORDER BY at LIMIT :limit)
RETURNING key
