-- Remember the highest seq and token of a namespace.
INSERT INTO lock_namespace (name, seq, token) VALUES (:namespace, :seq, :token)
    ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, token = excluded.token
