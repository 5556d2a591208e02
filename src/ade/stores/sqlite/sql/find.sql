-- List tasks page by page, behind :start. finding.py fills in what leads (the index to walk), the conditions, and
-- the direction.
SELECT t.seq, CAST(r.json AS BLOB)
  FROM task t {index}
  JOIN record r ON r.seq = t.seq
 WHERE {conditions}
   AND t.seq {beyond} :start
 ORDER BY t.seq {order}
 LIMIT :limit
