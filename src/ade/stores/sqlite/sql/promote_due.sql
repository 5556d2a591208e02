-- Delayed tasks whose time has come stand in line.
UPDATE task SET stage = 'ready'
 WHERE seq IN (SELECT seq FROM task INDEXED BY task_delayed
                WHERE stage = 'delayed' AND run_after <= :now ORDER BY run_after LIMIT 1000)
