-- Whether another holder could have a unit. Leases that ran out count until somebody removes them: that is the news.
SELECT 1 FROM agent
 WHERE id = :id AND status = 'active'
   AND max_tasks > (SELECT count(*) FROM agent_lease WHERE agent_id = :id)
