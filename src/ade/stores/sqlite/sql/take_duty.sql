-- Become or stay the one who performs a duty.
INSERT INTO duty (name, holder, until) VALUES (:duty, :holder, :until)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE duty.holder = excluded.holder OR duty.until < :steady
RETURNING holder
