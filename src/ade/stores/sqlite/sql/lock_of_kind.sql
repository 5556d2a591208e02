-- Requests that hold or wait for a resource of a kind, in one namespace or in all. A name of the kind begins with it and a
-- colon, behind which comes the semicolon (59), or is nothing else.
SELECT r.request
  FROM lock_request r
 WHERE r.id IN (
    SELECT i.request_id
      FROM lock_namespace n
     CROSS JOIN lock_item i ON i.namespace = n.name AND i.resource = :kind
     WHERE :namespace IS NULL OR n.name = :namespace
     UNION ALL
    SELECT i.request_id
      FROM lock_namespace n
     CROSS JOIN lock_item i ON i.namespace = n.name AND i.resource >= :kind || ':' AND i.resource < :kind || char(59)
     WHERE :namespace IS NULL OR n.name = :namespace)
 ORDER BY r.id LIMIT :limit
