-- Whether some parked task waits for a key nobody holds.
SELECT 1 FROM task p INDEXED BY task_parked
 WHERE p.stage = 'parked'
   AND NOT EXISTS (SELECT 1 FROM task k INDEXED BY task_key_running
                    WHERE k.status = 'running' AND k.concurrency_key IS NOT NULL
                      AND k.name = p.name AND k.concurrency_key = p.concurrency_key)
 LIMIT 1
