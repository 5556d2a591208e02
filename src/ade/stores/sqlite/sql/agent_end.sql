-- Remove the leases of some holders, and those that ran out. :holders is a JSON array.
DELETE FROM agent_lease
 WHERE agent_id = :agent_id
   AND (lease_until <= :steady OR holder IN (SELECT value FROM json_each(:holders)))
