-- Records one by one, for when one of them cannot be read. :seqs is a JSON array.
SELECT r.seq, CAST(r.json AS BLOB) FROM json_each(:seqs) AS s JOIN record r ON r.seq = s.value
