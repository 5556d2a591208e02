-- A reader has come further; never back.
INSERT INTO cursor (name, seq) VALUES (:name, :seq)
    ON CONFLICT (name) DO UPDATE SET seq = max(seq, excluded.seq)
