-- Tasks that wait for something that will never complete, with the ids of what they wait for in vain.
SELECT r.json, (SELECT json_group_array(o.id) FROM dependency b JOIN task o ON o.seq = b.on_seq
                 WHERE b.task_seq = t.seq AND b.broken)
  FROM (SELECT DISTINCT task_seq FROM dependency INDEXED BY dependency_broken WHERE broken = 1 LIMIT :limit) AS d
  JOIN task t ON t.seq = d.task_seq
  JOIN record r ON r.seq = t.seq
 WHERE t.stage IS NOT NULL
