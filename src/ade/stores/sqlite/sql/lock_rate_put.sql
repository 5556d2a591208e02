-- Remember how far the rate of an owner is used up.
INSERT INTO lock_rate (namespace, owner, full_at) VALUES (:namespace, :owner, :full_at)
    ON CONFLICT (namespace, owner) DO UPDATE SET full_at = excluded.full_at
