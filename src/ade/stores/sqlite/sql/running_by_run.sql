-- Tasks that run under one of these run ids (after an unknown outcome of a claim). :run_ids is a JSON array.
SELECT run_id, seq
  FROM task INDEXED BY task_lease
 WHERE status = 'running' AND run_id IN (SELECT value FROM json_each(:run_ids))
