-- Add one entry to the chain.
INSERT INTO ade_audit (seq, body, hash) VALUES (%(seq)s, %(body)s, %(hash)s)
