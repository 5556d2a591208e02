-- Their concurrency key is busy: out of the line until a running task of that key ends. :seqs is a JSON array.
UPDATE task SET stage = 'parked' WHERE seq IN (SELECT value FROM json_each(:seqs))
