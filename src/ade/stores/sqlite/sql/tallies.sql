-- The counters.
SELECT queue, name, status, count FROM tally WHERE count <> 0 ORDER BY queue, name, status
