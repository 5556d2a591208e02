-- One request of a namespace.
SELECT request FROM lock_request WHERE id = :id AND namespace = :namespace
