-- Requests of an owner, in one namespace or in all.
SELECT r.request
  FROM lock_namespace n
 CROSS JOIN lock_request r INDEXED BY lock_owner ON r.namespace = n.name AND r.owner = :owner
 WHERE :namespace IS NULL OR n.name = :namespace
 ORDER BY r.id
