-- How many wait in the longest of these lines, how many requests the owner has, and how far its rate is used up.
-- :resources is a JSON array.
SELECT coalesce(max(waiting), 0),
       (SELECT count(*) FROM lock_request WHERE namespace = :namespace AND owner = :owner),
       coalesce((SELECT full_at FROM lock_rate WHERE namespace = :namespace AND owner = :owner), 0)
  FROM (SELECT (SELECT count(*) FROM lock_item
                 WHERE namespace = :namespace AND resource = n.value AND granted = 0) AS waiting
          FROM json_each(:resources) AS n)
