-- The limits of a name changed: let the next claim decide anew.
UPDATE task SET stage = 'ready'
 WHERE seq IN (SELECT seq FROM task INDEXED BY task_parked WHERE stage = 'parked' AND name = :name)
