-- The latest moment of steady time that anything refers to.
SELECT max(coalesce((SELECT max(lease_until) FROM task WHERE status = 'running'), 0),
           coalesce((SELECT max(heartbeat_until) FROM worker), 0),
           coalesce((SELECT max(until) FROM duty), 0),
           coalesce((SELECT max(lease_until) FROM agent_lease), 0),
           coalesce((SELECT max(lease_until) FROM lock_request), 0),
           coalesce((SELECT max(held_until) FROM inbox WHERE held_until IS NOT NULL), 0),
           coalesce((SELECT max(full_at) / 1000 FROM lock_rate), 0),
           coalesce((SELECT max(full_at) / 1000 FROM document_rate), 0),
           coalesce((SELECT max(rate_full_at) / 1000 FROM definition), 0))
