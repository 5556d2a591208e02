-- Remove events. :seqs is a JSON array.
DELETE FROM event WHERE seq IN (SELECT value FROM json_each(:seqs)) RETURNING seq
