-- New tasks that ask for capabilities: few do. :rows is a JSON array of [seq, needs].
UPDATE task SET needs = c.value ->> 1
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0
