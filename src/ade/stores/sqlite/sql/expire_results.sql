-- Forget results whose time is over; the record says so.
UPDATE task_outcome
   SET outcome = json_set(iif(json_valid(outcome), json_remove(outcome, '$.result'), '{}'),
                          '$.result_expired', json('true')),
       expires_at = NULL
 WHERE seq IN (SELECT seq FROM task_outcome INDEXED BY outcome_expiry
                WHERE expires_at IS NOT NULL AND expires_at <= :now ORDER BY expires_at LIMIT :limit)
RETURNING seq
