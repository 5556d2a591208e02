-- The end of the chain: how far the copy has come.
SELECT seq, hash FROM ade_audit ORDER BY seq DESC LIMIT 1
