-- Whole records as one JSON array, in the order of the seqs. :seqs is a JSON array.
SELECT '[' || coalesce(group_concat(json, ',' ORDER BY key), '') || ']'
  FROM (SELECT s.key, r.json FROM json_each(:seqs) AS s JOIN record r ON r.seq = s.value)
