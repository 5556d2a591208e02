-- Remove all leases of an agent.
DELETE FROM agent_lease WHERE agent_id = :agent_id
