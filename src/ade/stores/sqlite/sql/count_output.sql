-- How many lines a run has written so far.
SELECT count(*) FROM output o JOIN task t ON t.seq = o.task_seq WHERE t.id = :task_id AND o.run_id = :run_id
