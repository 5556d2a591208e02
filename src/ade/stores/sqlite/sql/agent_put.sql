-- Write an agent as it stands.
INSERT INTO agent (id, max_tasks, status, registered_at, seen_until)
VALUES (:id, :max_tasks, :status, :registered_at, :seen_until)
    ON CONFLICT (id) DO UPDATE
   SET max_tasks = excluded.max_tasks, status = excluded.status, seen_until = excluded.seen_until
