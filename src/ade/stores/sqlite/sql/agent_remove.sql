-- Forget an agent.
DELETE FROM agent WHERE id = :id RETURNING id
