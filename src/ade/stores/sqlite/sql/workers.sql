-- All workers that are known.
SELECT worker, heartbeat_until FROM worker ORDER BY id
