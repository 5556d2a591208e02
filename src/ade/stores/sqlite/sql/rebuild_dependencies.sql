-- Tasks that ended run again: they wait anew for what has not ended. :seqs is a JSON array.
INSERT OR IGNORE INTO dependency (on_seq, task_seq, tolerant, broken)
SELECT o.seq, r.value, coalesce(d.detail ->> '$.after_failure', 'cancel') = 'run', 0
  FROM json_each(:seqs) AS r
  JOIN task_detail d ON d.seq = r.value AND json_valid(d.detail)
  JOIN json_each(d.detail, '$.depends_on') AS n
  JOIN task o ON o.id = n.value
 WHERE o.status NOT IN ('completed', 'failed', 'rejected', 'cancelled')
RETURNING task_seq
