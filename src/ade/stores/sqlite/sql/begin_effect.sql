-- Enter an effect, unless the ledger has it already.
INSERT INTO effect (key, run_id, done, at) VALUES (:key, :run_id, 0, :now) ON CONFLICT (key) DO NOTHING
