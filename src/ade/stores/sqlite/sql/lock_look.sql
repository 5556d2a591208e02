-- Some requests of a namespace. :ids is a JSON array.
SELECT request FROM lock_request
 WHERE id IN (SELECT value FROM json_each(:ids)) AND namespace = :namespace
