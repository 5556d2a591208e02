-- The requests that hold a resource, or wait for it (:granted is 0) in the order of their places.
SELECT r.request
  FROM lock_item i
  JOIN lock_request r ON r.id = i.request_id
 WHERE i.namespace = :namespace AND i.resource = :resource AND i.granted = :granted
 ORDER BY i.rank, i.seq, i.request_id
