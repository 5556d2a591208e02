-- A worker makes itself known or is heard of again.
INSERT INTO worker (id, worker, heartbeat_until) VALUES (:id, :worker, :until)
    ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, heartbeat_until = excluded.heartbeat_until
