-- Agents and the leases on their capacity: one row for each holder of a unit.

-- name: agents.get
-- Get one agent.
SELECT id, max_tasks, status, registered_at, seen_until, type, capabilities FROM agent WHERE id = :id

-- name: agents.list
-- List all agents by name.
SELECT id, max_tasks, status, registered_at, seen_until, type, capabilities FROM agent ORDER BY id

-- name: agents.put
-- Create or update an agent.
INSERT INTO agent (id, max_tasks, status, registered_at, seen_until, type, capabilities)
VALUES (:id, :max_tasks, :status, :registered_at, :seen_until, :type, :capabilities)
    ON CONFLICT (id) DO UPDATE
   SET max_tasks = excluded.max_tasks, status = excluded.status, seen_until = excluded.seen_until, type = excluded.type,
       capabilities = excluded.capabilities

-- name: agents.remove
-- Delete an agent.
DELETE FROM agent WHERE id = :id RETURNING id

-- name: agents.list_leases
-- List the live leases of all agents, as rows of agent, holder, and end.
SELECT agent_id, holder, lease_until FROM agent_lease WHERE lease_until > :steady ORDER BY agent_id, holder

-- name: agents.list_holders
-- List the holders of an agent's units.
SELECT holder FROM agent_lease WHERE agent_id = :agent_id AND lease_until > :steady

-- name: agents.has_capacity
-- Check whether an agent has a free unit. Expired leases count until they are deleted: the deletion is what wakes up
-- waiting callers.
SELECT 1 FROM agent
 WHERE id = :id AND status = 'active'
   AND max_tasks > (SELECT count(*) FROM agent_lease WHERE agent_id = :id)

-- name: agents.acquire
-- Write the leases of holders. :holders is a JSON array.
INSERT INTO agent_lease (agent_id, holder, lease_until)
SELECT :agent_id, value, :until FROM json_each(:holders) WHERE true
    ON CONFLICT (agent_id, holder) DO UPDATE SET lease_until = excluded.lease_until

-- name: agents.release
-- Delete the leases of these holders, and all expired ones. :holders is a JSON array.
DELETE FROM agent_lease
 WHERE agent_id = :agent_id
   AND (lease_until <= :steady OR holder IN (SELECT value FROM json_each(:holders)))

-- name: agents.release_all
-- Delete all leases of an agent.
DELETE FROM agent_lease WHERE agent_id = :agent_id
