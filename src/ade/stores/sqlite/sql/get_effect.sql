-- What the ledger has.
SELECT run_id, done, answer, at FROM effect WHERE key = :key
