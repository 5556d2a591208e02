-- Write an agent as it stands.
INSERT INTO agent (id, max_tasks, status, registered_at, seen_until, type, capabilities)
VALUES (:id, :max_tasks, :status, :registered_at, :seen_until, :type, :capabilities)
    ON CONFLICT (id) DO UPDATE
   SET max_tasks = excluded.max_tasks, status = excluded.status, seen_until = excluded.seen_until, type = excluded.type,
       capabilities = excluded.capabilities
