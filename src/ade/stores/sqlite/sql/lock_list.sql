-- Requests of one namespace or of all, those of one owner or of all.
SELECT request FROM lock_request
 WHERE (:namespace IS NULL OR namespace = :namespace) AND (:owner IS NULL OR owner = :owner)
 ORDER BY id LIMIT :limit
