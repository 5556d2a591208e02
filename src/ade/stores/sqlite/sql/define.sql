-- What a worker knows of its task names. :rows is a JSON array of [name, definition, limited].
INSERT INTO definition (name, definition, limited)
SELECT value ->> 0, value -> 1, value ->> 2 FROM jsonb_each(:rows) WHERE true
    ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, limited = excluded.limited
    WHERE definition IS NOT excluded.definition
RETURNING name
