-- Who holds a unit of an agent.
SELECT holder FROM agent_lease WHERE agent_id = :agent_id AND lease_until > :steady
