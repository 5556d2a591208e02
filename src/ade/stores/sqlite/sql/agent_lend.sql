-- Write the leases of some holders. :holders is a JSON array.
INSERT INTO agent_lease (agent_id, holder, lease_until)
SELECT :agent_id, value, :until FROM json_each(:holders) WHERE true
    ON CONFLICT (agent_id, holder) DO UPDATE SET lease_until = excluded.lease_until
