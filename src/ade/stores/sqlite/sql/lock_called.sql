-- Unattended requests that were let in or gave way.
SELECT request FROM lock_request INDEXED BY lock_called WHERE called ORDER BY id LIMIT :limit
