-- The highest seq and token of a namespace.
SELECT seq, token FROM lock_namespace WHERE name = :namespace
