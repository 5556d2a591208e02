-- Facts about the database itself.

-- name: meta.get
-- Read one fact.
SELECT value FROM meta WHERE key = :key

-- name: meta.set
-- Write one fact.
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: meta.page
-- Read the number of the page that this table begins with.
SELECT rootpage FROM sqlite_schema WHERE name = 'meta'

-- name: meta.remove
-- Remove one fact.
DELETE FROM meta WHERE key = :key

-- name: meta.count
-- Add one to a counter.
INSERT INTO meta (key, value) VALUES (:key, '1') ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1

-- name: meta.latest_lease
-- Read the latest point of steady time that any row refers to. After a reboot the steady clock continues from there.
SELECT max(coalesce((SELECT max(lease_until) FROM task WHERE status = 'running'), 0),
           coalesce((SELECT max(heartbeat_until) FROM worker), 0),
           coalesce((SELECT max(until) FROM duty), 0),
           coalesce((SELECT max(lease_until) FROM agent_lease), 0),
           coalesce((SELECT max(lease_until) FROM lock_request), 0),
           coalesce((SELECT max(held_until) FROM inbox WHERE held_until IS NOT NULL), 0),
           coalesce((SELECT max(full_at) / 1000 FROM lock_rate), 0),
           coalesce((SELECT max(full_at) / 1000 FROM document_rate), 0),
           coalesce((SELECT max(rate_full_at) / 1000 FROM definition), 0))
