-- Names with limits: definition, state of the rate limit, and how many run now.
SELECT d.definition, d.rate_full_at,
       coalesce((SELECT sum(count) FROM tally WHERE name = d.name AND status = 'running'), 0)
  FROM definition d
 WHERE d.limited
