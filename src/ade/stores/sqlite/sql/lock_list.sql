-- Requests of one namespace or of all.
SELECT r.request
  FROM lock_namespace n
 CROSS JOIN lock_request r INDEXED BY lock_owner ON r.namespace = n.name
 WHERE :namespace IS NULL OR n.name = :namespace
 ORDER BY r.id LIMIT :limit
