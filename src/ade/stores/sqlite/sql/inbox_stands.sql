-- The version of an inbox, and the ids of its newest writes as a JSON array.
SELECT version, writes FROM inbox WHERE id = :id
