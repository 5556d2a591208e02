-- Whoever has decided on these tasks must decide again. :seqs is a JSON array.
UPDATE task SET version = version + 1 WHERE seq IN (SELECT value FROM json_each(:seqs))
