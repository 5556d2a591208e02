-- Take items out of an inbox. :seqs is a JSON array.
DELETE FROM inbox_item WHERE inbox_id = :inbox_id AND seq IN (SELECT value FROM json_each(:seqs))
