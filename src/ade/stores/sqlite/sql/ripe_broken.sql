-- Tasks that wait for something that will never complete, with the ids of what they wait for in vain.
SELECT t.seq, CAST(r.json AS BLOB),
       (SELECT json_group_array(o.id) FROM dependency b JOIN task o ON o.seq = b.on_seq
         WHERE b.task_seq = t.seq AND b.broken)
  FROM (SELECT DISTINCT d.task_seq
          FROM dependency d INDEXED BY dependency_broken
          JOIN task w ON w.seq = d.task_seq AND w.stage IS NOT NULL
         WHERE d.broken = 1 LIMIT :limit) AS d
  JOIN task t ON t.seq = d.task_seq
  JOIN record r ON r.seq = t.seq
