-- Keep a run's newest progress, if the run still holds the task.
INSERT INTO task_outcome (seq, progress)
SELECT seq, :progress FROM task WHERE id = :id AND status = 'running' AND run_id = :run_id
    ON CONFLICT (seq) DO UPDATE SET progress = excluded.progress
RETURNING seq
