-- The live leases of all agents, as rows of agent, holder and end.
SELECT agent_id, holder, lease_until FROM agent_lease WHERE lease_until > :steady ORDER BY agent_id, holder
