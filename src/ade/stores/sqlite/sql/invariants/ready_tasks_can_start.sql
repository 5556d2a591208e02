-- A task in line waits for nothing; a blocked one waits for something.
SELECT 'task ' || id || ' is ' || stage || ' and waits for ' || waiting_on FROM task
 WHERE (stage = 'blocked') <> (waiting_on > 0) AND stage IS NOT NULL LIMIT 5
