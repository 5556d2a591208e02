-- Definitions that workers register for their task names, with the state of each rate limit.

-- name: definitions.put
-- Register the definitions of a worker; returns the names that changed. :rows is a JSON array of [name, definition,
-- limited].
INSERT INTO definition (name, definition, limited)
SELECT value ->> 0, value -> 1, value ->> 2 FROM jsonb_each(:rows) WHERE true
    ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, limited = excluded.limited
    WHERE definition IS NOT excluded.definition
RETURNING name

-- name: definitions.list
-- List all registered definitions.
SELECT definition FROM definition ORDER BY name

-- name: definitions.get_rate
-- Read the state of a name's rate limit.
SELECT rate_full_at FROM definition WHERE name = :name

-- name: definitions.set_rate
-- Write the state of a name's rate limit after a claim.
UPDATE definition SET rate_full_at = :full_at WHERE name = :name
