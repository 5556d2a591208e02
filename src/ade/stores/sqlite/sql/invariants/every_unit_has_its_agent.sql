-- Nobody holds a unit of an agent that is not known.
SELECT holder || ' has a unit of agent ' || agent_id || ', which is not known' FROM agent_lease
 WHERE agent_id NOT IN (SELECT id FROM agent) LIMIT 5
