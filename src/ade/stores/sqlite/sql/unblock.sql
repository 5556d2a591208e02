-- Count down what tasks wait for, and put those that wait for nothing in line. :rows is a JSON array of [seq, met].
UPDATE task
   SET waiting_on = waiting_on - c.met,
       stage = CASE WHEN stage IS NOT 'blocked' OR waiting_on > c.met THEN stage
                    WHEN run_after > :now THEN 'delayed'
                    ELSE 'ready' END
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS met FROM jsonb_each(:rows)) AS c
 WHERE task.seq = c.seq
