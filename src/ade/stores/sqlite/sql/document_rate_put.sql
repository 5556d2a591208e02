-- Remember how far a rate is used up.
INSERT INTO document_rate (key, full_at) VALUES (:key, :full_at)
    ON CONFLICT (key) DO UPDATE SET full_at = excluded.full_at
