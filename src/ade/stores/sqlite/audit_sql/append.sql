-- Add one entry to the chain.
INSERT INTO entry (seq, body, hash) VALUES (:seq, :body, :hash)
