-- What the records look like now and whether each guard holds. :rows is a JSON array of
-- [id, version, run_id, lease_until]; a NULL guard holds always. One JSON answer, in the order asked.
SELECT json_group_array(json_array(
           t.seq, t.status, t.run_id, t.waiting_on,
           t.seq IS NOT NULL
           AND (c.value ->> 1 IS NULL OR t.version = c.value ->> 1)
           AND (c.value ->> 2 IS NULL OR (t.status = 'running' AND t.run_id = c.value ->> 2))
           AND (c.value ->> 3 IS NULL OR t.lease_until IS c.value ->> 3)) ORDER BY c.key)
  FROM jsonb_each(:rows) AS c
  LEFT JOIN task t ON t.id = c.value ->> 0
