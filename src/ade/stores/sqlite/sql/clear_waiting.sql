-- Tasks that ended wait for nothing any more. :seqs is a JSON array.
UPDATE task SET waiting_on = 0 WHERE seq IN (SELECT value FROM json_each(:seqs))
