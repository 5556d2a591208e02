-- Requests whose time is over, as rows of namespace and id.
SELECT namespace, id FROM lock_request WHERE lease_until <= :now ORDER BY lease_until LIMIT :limit
