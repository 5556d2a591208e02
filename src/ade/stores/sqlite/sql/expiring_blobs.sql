-- Where the results whose time is over lie, if they lie outside the record.
SELECT o.outcome ->> '$.result."$blob"'
  FROM task_outcome o INDEXED BY outcome_expiry
 WHERE o.expires_at IS NOT NULL AND o.expires_at <= :now AND json_valid(o.outcome)
 ORDER BY o.expires_at LIMIT :limit
