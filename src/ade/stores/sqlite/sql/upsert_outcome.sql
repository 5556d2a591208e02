-- Write what a run left behind. :rows is a JSON array of [seq, outcome or null, expires_at].
INSERT INTO task_outcome (seq, outcome, expires_at)
SELECT value ->> 0, nullif(value -> 1, 'null'), value ->> 2 FROM jsonb_each(:rows) WHERE true
    ON CONFLICT (seq) DO UPDATE SET outcome = excluded.outcome, expires_at = excluded.expires_at
