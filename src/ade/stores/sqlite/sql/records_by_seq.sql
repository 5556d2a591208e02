-- Whole records as one JSON array, in the order of the seqs. :seqs is a JSON array.
SELECT CAST('[' || coalesce(group_concat(json, ',' ORDER BY key), '') || ']' AS BLOB)
  FROM (SELECT s.key, r.json FROM json_each(:seqs) AS s JOIN record r ON r.seq = s.value)
