-- Whole records by id. :ids is a JSON array.
SELECT t.seq, CAST(r.json AS BLOB)
  FROM json_each(:ids) AS i JOIN task t ON t.id = i.value JOIN record r ON r.seq = t.seq
