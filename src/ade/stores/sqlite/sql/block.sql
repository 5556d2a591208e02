-- Tasks that wait again. :rows is a JSON array of [seq, how many they wait for].
UPDATE task SET waiting_on = c.value ->> 1, stage = 'blocked'
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0
