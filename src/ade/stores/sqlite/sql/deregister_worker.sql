-- Forget a worker.
DELETE FROM worker WHERE id = :id
