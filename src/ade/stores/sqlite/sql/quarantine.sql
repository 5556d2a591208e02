-- Keep an unreadable record as it is.
INSERT OR REPLACE INTO quarantine (task_id, detail, outcome, at)
SELECT t.id, d.detail, o.outcome, :now
  FROM task t LEFT JOIN task_detail d ON d.seq = t.seq LEFT JOIN task_outcome o ON o.seq = t.seq
 WHERE t.seq = :seq
